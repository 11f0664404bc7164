"""Tokens of servers: asked for, checked, kept for their owner alone, told to nobody else."""

from __future__ import annotations

import json
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cleveragents.cli.run.server_resources import same_remote
from cleveragents.cli.servers import (
    CommandTransport,
    forget_token,
    keep_token,
    kept_token,
    logins_file,
    normal_url,
    token_for,
)
from cleveragents.cli.session import Session
from cleveragents.core.errors import ConfigurationError, ServerUnreachable
from cleveragents.server.first_token import token_file
from cleveragents.server.server_file import announced
from tests.cli_bench import Agents, command_line, use_home
from tests.races.hammer import hammer

SECRET = "agents_sk_0123456789"


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    with command_line(monkeypatch, capfd) as run:
        yield run


def test_a_token_is_kept_for_its_owner_alone_and_forgotten(tmp_path: Path) -> None:
    file = logins_file({"HOME": str(tmp_path)})
    assert kept_token(file, "http://one") is None
    assert not forget_token(file, "http://one")
    keep_token(file, "http://one", SECRET)
    keep_token(file, "http://[::1]:8420", "other")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (kept_token(file, "http://one"), kept_token(file, "http://[::1]:8420")) == (SECRET, "other")
    assert forget_token(file, "http://one")
    assert kept_token(file, "http://one") is None
    assert forget_token(file, "http://[::1]:8420")
    assert kept_token(file, "http://[::1]:8420") is None
    assert {path.name for path in file.parent.iterdir()} == {".servers.lock", file.name}


def test_of_logins_at_the_same_time_all_are_kept(tmp_path: Path) -> None:
    file = logins_file({"HOME": str(tmp_path)})
    hammer(lambda number: keep_token(file, f"http://host-{number}", f"token-{number}"))
    assert [kept_token(file, f"http://host-{number}") for number in range(8)] == [
        f"token-{number}" for number in range(8)
    ]


def test_a_file_that_others_can_read_or_that_is_damaged_is_refused(tmp_path: Path) -> None:
    file = logins_file({"HOME": str(tmp_path)})
    keep_token(file, "http://one", SECRET)
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="other users can read it"):
        kept_token(file, "http://one")
    file.chmod(0o600)
    file.write_text("[servers")
    with pytest.raises(ConfigurationError, match="is damaged"):
        kept_token(file, "http://one")
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigurationError):
        kept_token(file, "http://one")


def test_the_first_token_of_a_server_is_sent_to_that_server_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    use_home(monkeypatch, tmp_path, state)
    state.mkdir(exist_ok=True)
    token_file(state).write_text(f"{SECRET}\n")
    own, other = "http://127.0.0.1:8420", "http://127.0.0.1:8421"
    with announced(state, own, "now"):
        assert [token_for(Session(), url) for url in (own, other)] == [SECRET, None]
        keep_token(logins_file({"HOME": str(tmp_path)}), own, "of-a-login")
        assert token_for(Session(), own) == "of-a-login"
    assert token_for(Session(), other) is None


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("HTTP://Host:8420/", "http://host:8420"),
        ("https://host/agents/api", "https://host/agents"),
        ("http://[::1]:1", "http://[::1]:1"),
    ],
)
def test_an_address_is_kept_in_one_spelling(typed: str, kept: str) -> None:
    assert normal_url(typed) == kept


@pytest.mark.parametrize(
    "typed", ["host", "ftp://host", "http://", "http://h:99999", "http://me@h", "http://:pw@h", "http://h?x"]
)
def test_an_invalid_server_address_is_refused(typed: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        normal_url(typed)
    assert refused.value.exit_code == 2


def test_a_login_that_no_server_confirms_keeps_nothing(agents: Agents, tmp_path: Path) -> None:
    for typed in ("", "two words", "x" * 600):
        ended = agents("login", "http://127.0.0.1:9", "-", typed=typed)
        assert (ended.code, "paste the line that" in " ".join(ended.err.split())) == (2, True)
    ended = agents("login", "http://127.0.0.1:9", "-", typed=f"{SECRET}\n")
    assert (ended.code, SECRET in ended.err + ended.out) == (75, False)
    assert agents("login", "http://127.0.0.1:9").code == 2  # nobody is there to ask
    assert (
        "http:// does not encrypt the token"
        in agents("login", "http://nowhere.invalid", "-", typed=SECRET).err
    )
    assert not logins_file({"HOME": str(tmp_path)}).exists()


def test_an_invalid_address_or_token_names_the_argument(agents: Agents, tmp_path: Path) -> None:
    assert agents("login", "host").err.startswith("error: URL: 'host' is not a URL")
    assert agents("logout", "host").err.startswith("error: URL: 'host' is not a URL")
    shown = agents("login", "http://127.0.0.1:9", "hunter2hunter2")
    assert (shown.code, "a token on the command line" in shown.err, "hunter2" in shown.err) == (
        2,
        True,
        False,
    )
    with _stranger() as address:
        ended = agents("login", address, "-", typed=SECRET)
    assert (ended.code, "create one on the server" in " ".join(ended.err.split())) == (1, True)
    for status, code, problem in (
        (404, 2, "URL: no CleverAgents server answers at"),
        (500, 1, "answered 500"),
    ):
        with _stranger(status) as address:
            ended = agents("login", address, "-", typed=SECRET)
        assert (ended.code, problem in " ".join(ended.err.split())) == (code, True)
    assert not logins_file({"HOME": str(tmp_path)}).exists()


@pytest.mark.parametrize(("first", "asked"), [("outcome-unknown", 1), ("database-unreachable", 2)])
def test_a_lost_database_is_not_reported_as_busy(first: str, asked: int) -> None:
    keys: list[str | None] = []

    class BrokeOff(BaseHTTPRequestHandler):
        """Keeps the key, because it is not known what was done."""

        def do_POST(self) -> None:
            keys.append(self.headers["Idempotency-Key"])
            status, code = (503, first) if len(keys) == 1 else (409, "request-under-way")
            body = json.dumps({"code": code, "detail": f"it is {code}"}).encode()
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with (
        _served(BrokeOff) as address,
        CommandTransport(address, SECRET, patience_seconds=60.0) as client,
        pytest.raises(ServerUnreachable) as told,
    ):
        client.post("/plans")
    assert (told.value.problem, len(keys), len(set(keys))) == (f"it is {first}", asked, 1)


@contextmanager
def _stranger(status: int = 401) -> Iterator[str]:
    """A server that knows nobody, or has nothing."""

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _served(Refusal) as address:
        yield address


@contextmanager
def _served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(10)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("git@host:team/shop.git", "https://host/team/shop", True),
        ("ssh://git@host:22/team/shop.git", "host:team/shop", True),
        ("/srv/shop.git", "file:///srv/shop", True),
        ("https://host/team/shop", "https://host/team/other", False),
        ("https://one/team/shop", "https://two/team/shop", False),
    ],
)
def test_a_remote_is_the_same_however_it_is_reached(one: str, other: str, same: bool) -> None:
    assert same_remote(one, other) is same


def test_ca_certificates_are_loaded_only_for_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than most of what is asked. Beyond this machine a proxy may be met over TLS."""
    read: list[str] = []
    really = ssl.create_default_context

    def reading(*given: Any, **named: Any) -> ssl.SSLContext:
        read.append(url)
        return really(*given, **named)

    monkeypatch.setattr(ssl, "create_default_context", reading)
    for url in ("http://127.0.0.1:1", "http://localhost:1", "https://localhost:1", "http://team.example"):
        CommandTransport(url, None).close()
    assert sorted(set(read)) == ["http://team.example", "https://localhost:1"]
