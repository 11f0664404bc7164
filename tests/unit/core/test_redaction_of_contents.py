"""Files are unchanged except for known and unmistakable secrets."""

from __future__ import annotations

import pytest

from cleveragents.core.text.redaction import (
    MASK,
    KnownSecrets,
    redact_content,
    redact_content_text,
    redact_text,
)

CODE = """\
password = load_password("db")
self.token = token
token = next(tokens)
def f(token: str = "x", api_key: str | None = None): ...
api_key=os.environ["X"]
headers = {"Authorization": f"Bearer {token}", "Cookie": cookie}
url = f"postgresql://{user}:{password}@{host}/db"
clone = "https://$USER:${TOKEN}@example.org/x.git"
template = "postgresql://%s:%s@%s/db" % (user, password, host)
shown = "postgresql://USER:PASSWORD@HOST/db"
me = "http://localhost:8080/users/@me?sig=short"
<div class="sk-loading-indicator-with-a-long-name">
CONSTRAINT pk_organization_members PRIMARY KEY (id)
github_pat_environment_variable = "GITHUB_PAT"
BEGIN = "-----BEGIN PRIVATE KEY-----"
END = "-----END PRIVATE KEY-----"
assert "-----BEGIN RSA PRIVATE KEY-----" in text
tests/unit/infrastructure/tools/builtin/test_everything.py
"""

PEM = f"""\
-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,0123456789ABCDEF

{"A1b2" * 16}
{"c3D4" * 16}
e5F6==
-----END RSA PRIVATE KEY-----
"""


def test_source_code_that_only_names_secrets_is_left_as_it_is() -> None:
    assert redact_content_text(CODE) == CODE
    assert redact_text(CODE) != CODE


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ('key = "sk-abcdefghijklmnopqrstuv"', 'key = "***"'),
        ('key = "sk-ant-api03-a_b-0123456789abcdefXYZ_q-r"', 'key = "***"'),
        ("STRIPE=sk_live_abcdefghijklmnop1234", "STRIPE=***"),
        ("eleven: sk_" + "0123456789abcdef" * 3, "eleven: ***"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123", "***"),
        ("github_pat_abcdefghijklmnopqrst_0123", "***"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk", "***"),
        ("postgresql://me:s3cret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:p@s%40s@host/db", "postgresql://me:***@host/db"),
        ("https://host/blob?sv=1&sig=" + "aB3%2F" * 8, "https://host/blob?sv=1&sig=***"),
    ],
)
def test_masks_unmistakable_secrets_in_a_file(text: str, redacted: str) -> None:
    assert redact_content_text(text) == redacted
    assert redact_content_text(redacted) == redacted


def test_a_private_key_is_masked_line_by_line_so_that_lines_keep_their_numbers() -> None:
    masked = redact_content_text(f"before\n{PEM}after\n")
    lines = masked.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (len(PEM.splitlines()) + 2, "before", "after")
    assert lines[5:8] == [MASK, MASK, MASK]
    assert lines[8] == "-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize("cut_after", [5, 6])
def test_a_private_key_whose_end_is_not_shown_is_masked_too(cut_after: int) -> None:
    shown = "\n".join(PEM.splitlines()[:cut_after])
    assert "A1b2" not in redact_content_text(shown)
    assert "c3D4" not in redact_content_text(shown)


def test_a_private_key_with_numbers_before_its_lines_is_masked_too() -> None:
    shown = "".join(f"{n}\t{line}\n" for n, line in enumerate(PEM.splitlines()[:6], start=1))
    assert "A1b2" not in redact_content_text(shown)


def test_a_private_key_in_a_string_is_masked_and_what_follows_it_is_not() -> None:
    text = f"key = {PEM!r}\nother = 1\n"
    masked = redact_content_text(text)
    assert "\\n***\\n***\\n***\\n-----END" in masked
    assert masked.endswith("-----END RSA PRIVATE KEY-----\\n'\nother = 1\n")


@pytest.mark.parametrize("sign", ["+", "-", " "])
def test_a_private_key_in_a_diff_is_masked_too(sign: str) -> None:
    masked = redact_content_text("".join(f"{sign}{line}" for line in PEM.splitlines(keepends=True)))
    assert len(masked.splitlines()) == len(PEM.splitlines())
    assert not {"A1b2", "c3D4", "e5F6"} & {line[1:5] for line in masked.splitlines()}


def test_masks_a_known_secret_in_a_file_whatever_its_shape() -> None:
    secrets = KnownSecrets()
    secrets.add("plainly-a-kept-one")
    assert redact_content_text("x = 'plainly-a-kept-one'") == "x = '***'"


def test_a_structure_is_masked_by_its_texts_not_by_the_names_of_its_parts() -> None:
    found = {
        "token": "next",
        "count": 2,
        "none": None,
        "lines": ("a", "AKIAABCDEFGHIJKLMNOP", {"AKIAABCDEFGHIJKLMNOP": 1}),
    }
    assert redact_content(found) == {
        "token": "next",
        "count": 2,
        "none": None,
        "lines": ["a", MASK, {MASK: 1}],
    }


@pytest.mark.parametrize(
    "piece",
    [
        "sk-",
        "sk-a_",
        "sk-" + "a" * 15 + "-",
        "://a:",
        "://a:b@",
        "-----BEGIN PRIVATE KEY-----\n",
        "eyJ-",
        "&sig=a",
    ],
)
def test_a_huge_file_is_masked_in_one_go(piece: str) -> None:
    assert redact_content_text(piece * (1_000_000 // len(piece)))
