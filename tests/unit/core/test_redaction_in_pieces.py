"""A text that arrives in pieces is masked like the whole text, wherever it is cut."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.core.text.redaction import KnownSecrets, PieceMask, redact_text

KEY = "MIIEowIBAAKCAQEAx7f0\nq3Yl9cZZtopsecretline2\nlast+line/of=it\n"
HARMLESS = (
    "collected 3 items\n\ntests/a.py::one PASSED\r[50%]\r[100%]\n3 passed in 0.1 s\nthe basic idea: go on\n"
)
SECRETS = {
    "named": ("log in with password=hunter2hunter2 now\n", ("hunter2",)),
    "named on the next line": ("password:\n  hunter2hunter2\nmore\n", ("hunter2",)),
    "separated on the next line": ("API_KEY\n  = hunter2hunter2\nmore\n", ("hunter2",)),
    "quoted over lines": ('secret = "first half\nsecond half" # end\nmore\n', ("first half", "second half")),
    "bearer": ("Authorization: Bearer abcdef0123456789abcdef\nmore\n", ("abcdef0123456789",)),
    "url": ("cloning https://me:p4ssw0rdlong@example.org/x.git\nok\n", ("p4ssw0rdlong",)),
    "shape": ("the key is sk-abcdefghijklmnopqrstuvwx and goes on\n", ("sk-abcdefghijkl",)),
    "web token": (f"got eyJ{'a' * 300}.{'b' * 300}.{'c' * 60} there\n", ("aaaa", "bbbb", "cccc")),
    "key": (
        f"cat id\n-----BEGIN RSA PRIVATE KEY-----\n{KEY}-----END RSA PRIVATE KEY-----\nend\n",
        tuple(KEY.split()),
    ),
    "key without its end": (f"-----BEGIN PRIVATE KEY-----\n{KEY}", tuple(KEY.split())),
}


def told(text: str, borders: list[int], *, pauses: bool = False) -> list[str]:
    """Return the output piece by piece, optionally with a long pause after each."""
    mask = PieceMask()
    edges = [0, *sorted(borders), len(text)]
    said = [mask.feed(text[start:end]) + (mask.pause() if pauses else "") for start, end in pairwise(edges)]
    return [*said, mask.finish()]


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_masked_wherever_it_is_cut_in_two(name: str, pauses: bool) -> None:
    text, secrets = SECRETS[name]
    for border in range(len(text) + 1):
        whole = "".join(told(text, [border], pauses=pauses))
        assert [secret for secret in secrets if secret in whole] == [], border
        assert "***" in whole


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_masked_when_it_comes_in_many_pieces(name: str) -> None:
    text, secrets = SECRETS[name]
    chance = random.Random(name)
    for pieces in (len(text), *(chance.randint(2, 12) for _ in range(60))):
        borders = [*range(len(text))] if pieces == len(text) else chance.sample(range(len(text)), pieces)
        whole = "".join(told(HARMLESS + text, [len(HARMLESS) + border for border in borders]))
        assert [secret for secret in secrets if secret in whole] == [], borders
        assert whole.startswith(HARMLESS)


@given(st.lists(st.integers(0, len(HARMLESS) * 2), max_size=20))
@settings(max_examples=50)
def test_text_without_secrets_is_unchanged(borders: list[int]) -> None:
    assert "".join(told(HARMLESS * 2, borders)) == HARMLESS * 2


def test_returns_complete_lines_immediately_and_partial_ones_soon() -> None:
    mask = PieceMask()
    assert mask.feed("one\ntwo") == "one\n"
    assert mask.feed("\n") == "two\n"
    words = "and so on " * 30
    assert len(mask.feed(words)) > len(words) - 80
    assert mask.feed("\n") != ""
    assert mask.finish() == ""


def test_an_endless_word_is_returned_eventually() -> None:
    mask = PieceMask()
    said = [mask.feed("x" * 5000) for _ in range(10)]
    assert len("".join(said)) >= 40_000
    assert "".join(said) + mask.finish() == "x" * 50_000


def test_a_long_text_is_returned_without_its_undecided_end() -> None:
    mask = PieceMask()
    lines = "".join(f"line {number}\n" for number in range(20_000))
    assert mask.feed(lines + "password=hunter2") == lines
    assert mask.feed("hunter2\n") == "password=***\n"


@pytest.mark.parametrize("name", ["web token", "shape", "named"])
def test_a_secret_at_the_end_of_much_text_is_masked_wherever_it_is_cut(name: str) -> None:
    text, secrets = SECRETS[name]
    much = "and so on\n" * 9_000
    for border in range(0, len(text), max(5, len(text) // 12)):
        whole = "".join(told(much + text, [len(much) + border]))
        assert [secret for secret in secrets if secret in whole] == [], border


def test_a_secret_that_this_process_knows_is_masked_across_a_border() -> None:
    known = "correct-horse-battery-staple"
    secrets = KnownSecrets()
    secrets.add(known)
    for border in range(len(known)):
        assert known not in "".join(told(f"say {known} now\n", [4 + border]))


def test_an_unterminated_key_buffers_a_bounded_amount() -> None:
    mask = PieceMask()
    said = mask.feed("-----BEGIN PRIVATE KEY-----\n")
    for _ in range(10):
        said += mask.feed(KEY * 200)
        assert len(mask._text) + len(mask._skipped) < 40_000
    said += mask.feed("-----END PRIVATE KEY-----\nand on\n") + mask.finish()
    assert said == "-----BEGIN PRIVATE KEY-----***-----END PRIVATE KEY-----\nand on\n"


def test_a_quote_that_is_never_closed_holds_back_a_bounded_stretch() -> None:
    mask = PieceMask()
    said = mask.feed('password = "abcdefgh\n') + "".join(
        mask.feed(f"line {n}{' ' * 90}\n") for n in range(150)
    )
    assert "line 120" in said
    assert "abcdefgh" not in said
    assert redact_text(said) == said


KNOWN = (
    "pat-0123456789",
    "secret-onetwo",
    "two-secret\nmore lines",
    "aaaaaaaa",
    "abcabcabd",
    "has spaces in it",
)
TOKENS = (
    *("password", "api_key", "API key provided", "token", "_pwd", "secrets", "Authorization", "set-cookie"),
    *(
        "Bearer",
        "basic",
        "Digest",
        "=",
        ":",
        "=>",
        ": ",
        "'",
        '"',
        '\\"',
        "\\",
        "b'",
        " ",
        "\n",
        "\r\n",
        "\t",
    ),
    *(
        "\n" * 5,
        "\u00a0",
        ",",
        ";",
        "&",
        "(",
        "SecretStr(",
        "None",
        "True",
        "hunter2",
        "hu",
        "authentication",
    ),
    *("abcdef0123", "sk-abcdefghijklmnopqrst", "sk-", "sk_live_", "abcdefghijklmnop", "AKIAABCDEFGHIJKLMNOP"),
    *("glpat-0123456789abcdefghij", "eyJhbGciOiJI", "eyJhbGciOiJI.eyJhbGciOiJI.", "://", "https://me:", "@"),
    *(
        "pw@host",
        *("?sig=", "sig=", "?", ")", "]", "}", "!", ">", "[y/N]"),
        "&key=",
        "-----BEGIN ",
        "RSA ",
        "PRIVATE KEY-----",
        "-----END ",
        "_less",
        "Foo",
        "0",
    ),
    *("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----", *KNOWN, "pat-01234", "secret-one"),
    *("two-secret\n", "more lines", "aaaaa", "abcabc", "abd", "has spaces", " in it"),
)
TEXTS = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=14).map(
    lambda tokens: "".join([*tokens, "\1"])
)


@given(TEXTS, st.data())
@settings(max_examples=400)
def test_pieces_are_masked_as_the_whole_text_is_wherever_it_is_cut(text: str, data: st.DataObject) -> None:
    secrets = KnownSecrets()
    for value in KNOWN:
        secrets.add(value)
    each = [*range(len(text))]
    borders = data.draw(st.just(each) | st.lists(st.sampled_from(each), max_size=4))
    assert "".join(told(text, borders, pauses=data.draw(st.booleans()))) == redact_text(text)


@given(
    st.text("ab-", max_size=30),
    st.lists(st.text("ab-", min_size=1, max_size=7), max_size=4),
    st.lists(st.integers(0, 30), max_size=8),
)
@settings(max_examples=300)
def test_known_values_that_overlap_are_masked_wherever_they_are_cut(
    text: str, known: list[str], borders: list[int]
) -> None:
    mask = PieceMask(lambda: known, only_known=True)
    text += "\1"
    edges = [0, *sorted(min(border, len(text)) for border in borders), len(text)]
    said = "".join(mask.feed(text[start:end]) for start, end in pairwise(edges)) + mask.finish()
    assert said == redact_text(text, known)


@pytest.mark.parametrize("name", ["password=", "see https://me:", "Cookie: a=", "password=SecretStr('"])
def test_masks_a_secret_too_long_to_buffer_to_the_end_of_its_line(name: str) -> None:
    mask, said = PieceMask(), ""
    for _ in range(20):
        said += mask.feed(f"{name}first" if not said and not mask._text else "hunter2" * 1000)
        assert len(mask._text) < 50_000
    said += mask.feed("hunter2@host, and on\nthe next line\n") + mask.finish()
    assert "hunter2" not in said
    assert said.endswith("***\nthe next line\n")


def test_an_endlessly_repeated_known_value_takes_bounded_memory() -> None:
    mask = PieceMask(lambda: ["------"], only_known=True)
    said = ""
    for _ in range(50):
        said += mask.feed("-" * 1000)
        assert len(mask._text) < 30_000
    assert said + mask.feed("\nafter") + mask.finish() == "***\nafter"


def test_most_of_a_known_value_is_masked_where_the_text_ends() -> None:
    mask = PieceMask(lambda: ["correct-horse-battery"], only_known=True)
    assert mask.feed("say correct-horse") + mask.finish() == "say ***"
    assert mask.feed("say corr") + mask.finish() == "say corr"


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("Continue? [y/N]", "Continue? [y/N]"),
        ("Continue?", "Continue"),
        ("(gdb)", "(gdb)"),
        (">>>", ">>>"),
        ("go on: ", "go on: "),
        ("password:", ""),
        ("https://me)", ""),
        ("loading", ""),
    ],
)
def test_a_long_pause_shows_a_prompt_that_begins_no_secret(prompt: str, shown: str) -> None:
    mask = PieceMask()
    assert mask.feed(prompt) + mask.pause() == shown
    assert mask.holds == (shown != prompt)
    assert mask.finish() == prompt[len(shown) :]
    assert not mask.holds
