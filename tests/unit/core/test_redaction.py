"""Secrets are never shown: masked by name, by shape and by value."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import msgspec
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.config.logging import configure_logging
from cleveragents.config.settings import Settings
from cleveragents.core.text.redaction import MASK, PieceMask, redact, redact_text, url_password


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("postgresql://me:s3cret@host/db", "postgresql://me:***@host/db"),
        (
            "at postgresql+psycopg://me:p@ss/w@host:5432/db now",
            "at postgresql+psycopg://me:***@host:5432/db now",
        ),
        ("https://:tok@host/", "https://:***@host/"),
        ("/db?password=s3cret&sslmode=require", "/db?password=***&sslmode=require"),
        ("a=1&password=s3cret&b=2", "a=1&password=***&b=2"),
        ("client_secret=s3cret&redirect_uri=x&filter[a]=1", "client_secret=***&redirect_uri=x&filter[a]=1"),
        ("?password=&user=bob", "?password=&user=bob"),
        ("password=Tr0ub4dor&3xyz", "password=***"),
        ("password=a&b&3xyz next", "password=*** next"),
        ("password=Tr0ub4dor& next", "password=*** next"),
        ("/db?password=Tr0ub4dor&3xyz&sslmode=require", "/db?password=***&sslmode=require"),
        ("PASSWORD=s3cret&&make", "PASSWORD=***&&make"),
        ("connect failed: password=s3cret host=x", "connect failed: password=*** host=x"),
        ("Authorization: Bearer abcdefgh.12345678", "Authorization: Bearer ***"),
        ("key sk-abcdefghijklmnopqrstuv stays", "key *** stays"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123", "***"),
        ("AKIAABCDEFGHIJKLMNOP", "***"),
        ("http://host:8080/path", "http://host:8080/path"),
        ("sqlite:////home/me/state.db", "sqlite:////home/me/state.db"),
        ("nothing to see: a@b.c, 12:30", "nothing to see: a@b.c, 12:30"),
    ],
)
def test_secrets_are_known_by_their_shape(text: str, redacted: str) -> None:
    assert redact_text(text) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "OPENAI_API_KEY=hunter2",
        "db_password=hunter2",
        "PGPASSWORD=hunter2 psql -h db",
        "{'password': 'hunter2', 'user': 'bob'}",
        '{"api_key": "hunter2"}',
        '{"body": "{\\"api_key\\": \\"hunter2\\"}"}',
        '{"Password":"with a \\" quote: hunter2"}',
        "token=hunter2",
        "accessToken: hunter2",
        "AWS_SECRET_ACCESS_KEY=hunter2",
        "Login(user='bob', password=SecretStr('hunter2'))",
        "password=b'hunter2'",
        'password = "never closed, hunter2',
        "Authorization: Token hunter2",
        "{'Authorization': 'Basic hunter2'}",
        "Cookie: a=1; session=hunter2",
        "https://host/blob?sv=1&sig=hunter2hunter2",
        "Server=db;UID=bob;PWD=hunter2;",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
        "password=" + "x" * 5000 + "hunter2",
        "Bearer " + "x" * 5000 + "hunter2",
        "sk-" + "x" * 5000 + "hunter2",
        "postgresql://bob:" + "x" * 5000 + "hunter2@db",
    ],
)
def test_a_secret_is_masked_however_it_is_written_down(text: str) -> None:
    masked = redact_text(text)
    assert "hunter2" not in masked
    assert MASK in masked
    assert "hunter2" not in redact_text(f"it said {text!r}")


@pytest.mark.parametrize(
    "key",
    [
        "AIzaSyA1234567890abcdefghijklmnopqrstuv",
        "glpat-abcdefghij0123456789",
        "hf_abcdefghijklmnopqrstuvwxyz",
        "sk_live_abcdefghijklmnop1234",
        "github_pat_abcdefghijklmnopqrst_0123",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk",
    ],
)
def test_a_providers_key_needs_no_name(key: str) -> None:
    assert redact_text(f"tried {key} twice") == f"tried {MASK} twice"


@pytest.mark.parametrize(
    "text",
    [
        "tokens: 12, token count: 12, max_tokens=4096",
        "token_count=1200 and prompt-tokens: 1500",
        "the token was refused: try another",
        "a password-less login: allowed",
        "password=None, token=null, secret: false",
        "password='' and api_key=\"\"",
        "Basic authentication is off; bearer authentication: on",
        "the secretary: Miss Moneypenny",
        "PWD=/home/bob OLDPWD=/tmp",
        "risk-assessment-of-the-whole-project",
        "keyboard=german monkey=animal",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert redact_text(text) == text


SECRET_NAMES = st.sampled_from(["password", "DB_PASSWORD", "apiKey", "api-key", "clientSecret", "authToken"])
WRITTEN = st.sampled_from(["{}={}", "{}: {}", "{} = '{}'", '"{}": "{}"', "'{}': '{}'", '\\"{}\\":\\"{}\\"'])
SECRETS = st.text("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789+/_.!#$%", min_size=8, max_size=40)


@given(SECRET_NAMES, WRITTEN, SECRETS, st.text("abc xyz'\"\\{}:=,\n", max_size=20))
def test_masks_the_value_after_a_secret_name_once(name: str, written: str, secret: str, before: str) -> None:
    masked = redact_text(f"{before} {written.format(name, secret)}, user=bob")
    assert secret not in masked
    assert masked.endswith(", user=bob")
    assert redact_text(masked) == masked


@pytest.mark.parametrize(
    "piece",
    [
        *("a", "=", '"', "'", "\\", "@", "a:", "://", "://a:", "password", "secret_", "password= "),
        *(
            "password='\n",
            'password=\\"',
            "eyJ-",
            "sk-",
            "-----BEGIN PRIVATE KEY-----",
            "Bearer ",
            "cookie:",
            "&sig=",
            "&a",
            "password=abc&",
            "&password=abc",
            "password=token=",
            "password: token: ",
            "token:'",
            'secret="x\\',
            "api key ",
        ),
    ],
)
@pytest.mark.timeout(100)
def test_a_huge_text_is_masked_in_one_go(piece: str) -> None:
    """Searching the rest of the text at every position would take minutes."""
    text = piece * (400_000 // len(piece))
    assert redact_text(text, ["aaaaaaaa", "password"])
    mask = PieceMask()
    assert "".join(
        [*(mask.feed(text[at : at + 65_536]) for at in range(0, len(text), 65_536)), mask.finish()]
    )


CAMELS = ("accessToken", "refreshToken", "apiKey", "AWSSecretAccessKey", "userPassword", "db_pwd")


def test_secrets_are_known_by_their_name_at_any_depth() -> None:
    facts = {
        "api_key": "x",
        "nested": [{"Password": "y", "tokens": 12, "access_token": "z"}, ("secret", {"client-secret": "w"})],
        "empty": {"password": ""},
        "count": 3,
        "none": None,
        "tokens": 5,
        "tokenCount": 6,
        "passwordless": True,
        **dict.fromkeys(CAMELS, "s3cret"),
        "postgresql://me:s3cret@host": 1,
    }
    assert redact(facts) == {
        "api_key": MASK,
        "nested": [
            {"Password": MASK, "tokens": 12, "access_token": MASK},
            ["secret", {"client-secret": MASK}],
        ],
        "empty": {"password": ""},
        "count": 3,
        "none": None,
        "tokens": 5,
        "tokenCount": 6,
        "passwordless": True,
        **dict.fromkeys(CAMELS, MASK),
        "postgresql://me:***@host": 1,
    }


def test_truncates_an_endless_structure() -> None:
    loop: list[object] = ["postgresql://me:s3cret@host/db"]
    loop.append(loop)
    assert "s3cret" not in json.dumps(redact(loop))


def test_masks_a_known_secret_at_any_position() -> None:
    assert redact_text("xs3crety, 's3cret'", ["", "s3cret"]) == "x***y, '***'"


@pytest.mark.parametrize(
    ("text", "known", "masked"),
    [
        ("use glpat-0123456789abcdefghij", ["pat-0123456789"], "use ***"),
        ("x secret-onetwo-secret y", ["secret-onetwo", "two-secret"], "x *** y"),
        ("x secret-onetwo-secret y", ["two-secret", "secret-one"], "x *** y"),
        ("x outer-inner-outer y", ["inner", "outer-inner-outer"], "x *** y"),
        ("x onetwo y", ["one", "two"], "x *** y"),
        ("x abababab y", ["abab"], "x *** y"),
        ("password=before-known-after, z", ["known"], "password=***, z"),
        ("postgresql://me:pa-known-ss@host", ["known", "ss@ho"], "postgresql://me:***st"),
        ("password=token: hunter2hunter2", [], "password=*** ***"),
        ("Incorrect API key provided: sk-x", ["Incorrec"], "***t API key provided: ***"),
    ],
)
def test_secrets_that_overlap_are_masked_as_one(text: str, known: list[str], masked: str) -> None:
    assert redact_text(text, known) == masked
    assert redact_text(text, known[::-1]) == masked


LETTERS = "ab-"


@given(st.text(LETTERS, max_size=40), st.lists(st.text(LETTERS, min_size=1, max_size=6), max_size=5))
def test_no_character_of_a_known_value_is_left(text: str, known: list[str]) -> None:
    hidden = {
        place
        for value in known
        for start in range(len(text))
        if text.startswith(value, start)
        for place in range(start, start + len(value))
    }
    pieces = (MASK if place in hidden else text[place] for place in range(len(text)))
    expected = "".join(
        piece
        for place, piece in enumerate(pieces)
        if not (place in hidden and place - 1 in hidden)  # adjacent spans are one
    )
    assert redact_text(text, known) == expected


def test_the_password_of_a_url_is_found_as_it_was_written() -> None:
    assert url_password("postgresql://me:p%40ss@host/db") == "p%40ss"
    assert url_password("sqlite:////state.db") is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def logged(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **log: str) -> str:
    """Return the stderr output of a warning with an exception and a secret, and a debug message."""
    url = "postgresql://me:s3cret@host/db"
    monkeypatch.setattr("sys.stderr", stream)
    configure_logging(msgspec.convert({"database": {"url": url}, "log": log}, Settings))
    try:
        logger = structlog.get_logger()
        logger.debug("unimportant.detail")
        try:
            raise ValueError(f"cannot reach {url}")
        except ValueError:
            logger.warning("store.failed", password="s3cret", said="it is s3cret", exc_info=True)
    finally:
        structlog.reset_defaults()
    return stream.getvalue()


def test_the_log_is_json_for_programs_and_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    line = logged(monkeypatch, io.StringIO())
    event = json.loads(line)
    assert (event["event"], event["level"], event["password"]) == ("store.failed", "warning", MASK)
    assert "ValueError" in event["exception"]
    assert "s3cret" not in line


def test_the_log_is_readable_on_a_terminal_and_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    text = logged(monkeypatch, Terminal())
    assert "store.failed" in text
    assert "ValueError" in text
    assert "s3cret" not in text


def test_a_piped_command_logs_text_and_a_piped_service_json(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = []
    for is_news in (lambda told: True, None):
        stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", stream)
        configure_logging(msgspec.convert({}, Settings), is_news=is_news)
        try:
            structlog.get_logger().warning("store.failed", table="plans")
        finally:
            structlog.reset_defaults()
        lines.append(stream.getvalue())
    command, service = lines
    assert ("store.failed" in command, command.startswith("{")) == (True, False), command
    assert json.loads(service)["event"] == "store.failed"


def test_level_and_format_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert logged(monkeypatch, io.StringIO(), level="error") == ""
    assert "unimportant.detail" in logged(monkeypatch, io.StringIO(), level="debug")
    assert json.loads(logged(monkeypatch, Terminal(), format="json"))["event"] == "store.failed"
    assert "{" not in logged(monkeypatch, io.StringIO(), format="console").splitlines()[0]


@pytest.mark.parametrize(
    ("log_format", "kind", "read"),
    [
        ("auto", Terminal, ["note: it is so\n", ""]),
        ("auto", io.StringIO, ["note: it is so\n"] * 2),
        ("json", Terminal, ['{"event": "it.is"'] * 2),
    ],
    ids=["for people", "in a file", "for programs"],
)
def test_people_get_a_sentence_once_and_programs_every_event(
    monkeypatch: pytest.MonkeyPatch, log_format: str, kind: type[io.StringIO], read: list[str]
) -> None:
    news: list[str] = []

    def is_news(sentence: str) -> bool:
        news.append(sentence)
        return len(news) == 1

    lines: list[str] = []
    for _ in range(2):
        stream = kind()
        monkeypatch.setattr("sys.stderr", stream)
        configure_logging(msgspec.convert({"log": {"format": log_format}}, Settings), is_news=is_news)
        try:
            structlog.get_logger().warning("it.is", told="it is so")
        finally:
            structlog.reset_defaults()
        lines.append(stream.getvalue())
    assert all(words in line and "told" not in line for words, line in zip(read, lines, strict=True))
    assert (lines[1] == "") == (read[1] == "")
    assert bool(news) == (read[1] == ""), "what nobody reads is not remembered as told"


LOGS_LATER = """
import sys
import msgspec
from cleveragents.config.settings import Settings
from cleveragents.config.logging import configure_logging
url = "postgresql://me:s3cret@host/db"
configure_logging(msgspec.convert({"database": {"url": url}, "log": {"level": "debug"}}, Settings))
configure_logging(msgspec.convert({"database": {"url": url}, "log": {"level": "error"}}, Settings))
assert "structlog" not in sys.modules
import structlog
structlog.get_logger().warning("not.wanted")
structlog.get_logger().error("store.failed", said="it is s3cret")
configure_logging(msgspec.convert({"database": {"url": url}, "log": {"level": "debug"}}, Settings))
structlog.get_logger().debug("wanted.now")
"""


def test_structlog_loaded_later_is_configured_from_its_first_entry() -> None:
    command = [sys.executable, "-c", LOGS_LATER]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stderr.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["store.failed", "wanted.now"]
    assert "s3cret" not in lines[0]
