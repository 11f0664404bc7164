"""Secrets never get out, by name, by shape or by value."""

from __future__ import annotations

import io
import json

import pytest
import structlog

from cleveragents.domain.redaction import MASK, redact, redact_text, url_password
from cleveragents.infrastructure.configuration.settings import Settings
from cleveragents.infrastructure.logging import configure_logging


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


def test_secrets_are_known_by_their_name_at_any_depth() -> None:
    facts = {
        "api_key": "x",
        "nested": [{"Password": "y", "tokens": 12, "access_token": "z"}, ("secret", {"client-secret": "w"})],
        "empty": {"password": ""},
        "count": 3,
        "none": None,
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
    }


def test_a_structure_without_end_is_cut_not_followed() -> None:
    loop: list[object] = ["postgresql://me:s3cret@host/db"]
    loop.append(loop)
    assert "s3cret" not in json.dumps(redact(loop))


def test_a_known_secret_is_removed_wherever_it_stands() -> None:
    assert redact_text("xs3crety, 's3cret'", ["", "s3cret"]) == "x***y, '***'"


def test_the_password_of_a_url_is_found_as_it_was_written() -> None:
    assert url_password("postgresql://me:p%40ss@host/db") == "p%40ss"
    assert url_password("sqlite:////state.db") is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def logged(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **log: str) -> str:
    """What one warning with an exception, a secret and a debug message leave on stderr."""
    url = "postgresql://me:s3cret@host/db"
    monkeypatch.setattr("sys.stderr", stream)
    configure_logging(Settings.model_validate({"database": {"url": url}, "log": log}))
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


def test_level_and_format_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert logged(monkeypatch, io.StringIO(), level="error") == ""
    assert "unimportant.detail" in logged(monkeypatch, io.StringIO(), level="debug")
    assert json.loads(logged(monkeypatch, Terminal(), format="json"))["event"] == "store.failed"
    assert "{" not in logged(monkeypatch, io.StringIO(), format="console").splitlines()[0]
