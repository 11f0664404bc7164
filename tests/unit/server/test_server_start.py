"""`agents serve`: where it listens, whom it lets in first, what it says of itself, and how it stops."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from cleveragents.access.model.user import Role, TokenKind
from cleveragents.app.container import Container
from cleveragents.cli.admin.serve import offer_repository, print_first_token
from cleveragents.config.loader import load_configuration
from cleveragents.core.clock import SystemClock
from cleveragents.core.errors import ConfigurationError, InvalidName, PortTaken
from cleveragents.jobs.model.job import JobState
from cleveragents.server.first_token import adopt_token, ensure_first_token, token_file
from cleveragents.server.serve import (
    ensure_guarded,
    listening,
    places_of,
    remedy_of,
    serve,
    url_of,
)
from cleveragents.server.server_file import RunningServer, announced, running_server, server_file
from tests.cli_bench import command_line, git, paint_shop, use_home
from tests.hostile_home import ScreenRecorder
from tests.races.hammer import hammer
from tests.ready_database import ready_database
from tests.server_bench import server_bench

SECONDS_LIMIT = 60.0


@pytest.fixture
def state(tmp_path: Path) -> Path:
    directory = tmp_path / "state"
    ready_database(directory / "state.db")
    return directory


def container_at(state: Path, *overrides: str) -> Container:
    environment = {"HOME": str(state.parent), "CLEVERAGENTS_STATE_DIRECTORY": str(state)}
    return Container(load_configuration(environment, state.parent, overrides).settings)


@pytest.fixture
def container(state: Path) -> Iterator[Container]:
    with container_at(state) as made:
        yield made


def waited_for(look: Callable[[], object]) -> object:
    """Return the first true value."""
    give_up = time.monotonic() + SECONDS_LIMIT
    while not (found := look()):
        assert time.monotonic() < give_up
        threading.Event().wait(0.02)
    return found


def modes(directory: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


def test_a_server_is_found_while_it_lives_and_no_longer(state: Path) -> None:
    assert running_server(state) is None
    with announced(state, "http://here", "now") as first:
        assert first
        assert running_server(state) == RunningServer("http://here", os.getpid(), "now")
        assert modes(state)["server.json"] == 0o600
    assert running_server(state) is None
    assert not server_file(state).exists()


def test_a_stale_server_file_is_recognised_even_if_its_pid_is_reused(state: Path) -> None:
    left = {"url": "http://gone", "pid": os.getpid(), "started": "before"}
    server_file(state).write_text(json.dumps(left))
    assert running_server(state) is None
    with announced(state, "http://here", "now") as first:
        assert first
        found = running_server(state)
        assert found is not None
        assert found.url == "http://here"


def test_commands_go_through_the_first_server_as_long_as_it_lives(state: Path) -> None:
    with announced(state, "http://one", "now"):
        with announced(state, "http://two", "now") as first:
            assert not first
        found = running_server(state)
        assert found is not None
        assert found.url == "http://one"


def test_a_server_that_starts_waits_for_one_that_is_about_to_say_where_it_is(state: Path) -> None:
    entered = threading.Event()
    firsts: list[bool] = []

    def start() -> None:
        with announced(state, "http://second", "now") as first:
            firsts.append(first)
            entered.set()

    with ExitStack() as other:
        with (state / "server.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            starting = threading.Thread(target=start)
            starting.start()
            # However long this is, it does not enter.
            assert not entered.wait(0.5)
            said = other.enter_context(server_file(state).open("w"))
            json.dump({"url": "http://first", "pid": 1, "started": "now"}, said)
            said.flush()
            fcntl.flock(said, fcntl.LOCK_EX)
        starting.join(SECONDS_LIMIT)
    assert firsts == [False]


def test_the_first_start_creates_an_admin_and_shows_the_token_once(container: Container) -> None:
    first = ensure_first_token(container)
    assert first.secret is not None
    known = container.users.known_by(first.secret, TokenKind.PROGRAM, now=container.clock.now())
    assert known is not None
    assert (known[0].name, known[0].role) == ("admin", Role.ADMIN)
    assert first.file.read_text() == first.secret + "\n"
    assert modes(container.state_directory)["server-token"] == 0o600
    again = ensure_first_token(container)
    assert (again.secret, again.file) == (None, first.file)
    assert len(container.users.tokens_of("admin")) == 1
    assert not [name for name in modes(container.state_directory) if name.startswith(".server-token")]


def test_a_token_that_is_kept_from_another_database_counts_for_a_new_one_unless_it_was_revoked(
    container: Container,
) -> None:
    now = container.clock.now()
    kept = token_file(container.state_directory)
    kept.write_text("0123456789abcdef" * 4)
    kept.chmod(0o600)
    assert ensure_first_token(container).secret is None
    known = container.users.known_by(kept.read_text(), TokenKind.PROGRAM, now=now)
    assert known is not None
    assert known[0].role is Role.ADMIN
    container.users.revoke(known[1].id, now=now)
    assert ensure_first_token(container).secret is None
    assert container.users.known_by(kept.read_text(), TokenKind.PROGRAM, now=now) is None


def test_the_token_file_is_named_only_if_its_token_is_valid(container: Container) -> None:
    now = container.clock.now()
    first = ensure_first_token(container)
    assert first.lets_in
    assert ensure_first_token(container).lets_in
    container.users.revoke(container.users.tokens_of("admin")[0].id, now=now)
    assert not ensure_first_token(container).lets_in
    container.users.issue("admin", TokenKind.PROGRAM, "", now=now)
    assert not ensure_first_token(container).lets_in
    first.file.unlink()
    assert not ensure_first_token(container).lets_in


def test_the_next_start_completes_a_killed_first_start(
    container: Container,
) -> None:
    container.users.add("root", Role.ADMIN, now=container.clock.now())
    first = ensure_first_token(container)
    assert first.secret is not None
    assert [user.name for user in container.users.list()] == ["root"]


@pytest.mark.parametrize("on_terminal", [True, False])
def test_only_a_terminal_shows_the_first_token(
    container: Container, monkeypatch: pytest.MonkeyPatch, on_terminal: bool
) -> None:
    stream = ScreenRecorder() if on_terminal else io.TextIOWrapper(io.BytesIO(), write_through=True)
    monkeypatch.setattr(sys, "stderr", stream)
    container.users.add("root", Role.ADMIN, now=container.clock.now())
    with listening("127.0.0.1", 0) as listens:
        print_first_token(container, listens)
    assert isinstance(stream.buffer, io.BytesIO)
    told = stream.buffer.getvalue().decode()
    secret = token_file(container.state_directory).read_text().strip()
    assert (f"/login#{secret}" in told) is (secret in told) is on_terminal
    assert (f"/login with the token in {token_file(container.state_directory)}\n" in told) is not on_terminal
    assert "create" not in told, "there is a token already"


def test_every_start_says_where_to_log_in_and_with_which_token(
    container: Container, capsys: pytest.CaptureFixture[str]
) -> None:
    file, users, now = token_file(container.state_directory), container.users, container.clock.now()
    with listening("127.0.0.1", 0) as listens:
        print_first_token(container, listens)
        print_first_token(container, listens)
        users.revoke(users.tokens_of("admin")[0].id, now=now)
        print_first_token(container, listens)
        users.issue("admin", TokenKind.PROGRAM, "mine", now=now)
        print_first_token(container, listens)
        login = f"log in at http://127.0.0.1:{listens.getsockname()[1]}/login with"
    kept, new = f"{login} the token in {file}", f"{login} a token; create one with `agents user token NAME`"
    assert capsys.readouterr().err.splitlines() == [kept, kept, new, f"{login} your token"]


@pytest.mark.parametrize(
    ("on_terminal", "answer", "said"),
    [
        (True, True, "added shop: plans may run on "),
        (True, False, "register it later with `agents resource add shop --project default --path "),
        (False, False, "register it with `agents resource add shop --project default --path "),
    ],
)
def test_a_server_in_a_repository_offers_to_register_it(
    container: Container,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    on_terminal: bool,
    answer: bool,
    said: str,
) -> None:
    ask = (lambda question: answer) if on_terminal else None
    offer_repository(container, tmp_path, ask)
    assert capsys.readouterr().err == "", "a plain directory is not offered"
    below = tmp_path / "shop" / "src"
    below.mkdir(parents=True)
    git(tmp_path / "shop", "init", "-q")
    offer_repository(container, below, ask)
    assert said in capsys.readouterr().err
    known = [(one.name, one.location) for one in container.projects.resources()]
    assert known == ([("shop", str(tmp_path / "shop"))] if answer else [])
    if answer:
        offer_repository(container, below, ask)
        assert capsys.readouterr().err == "", "it is registered once"


def test_a_user_named_admin_is_promoted_only_without_another_admin(container: Container) -> None:
    container.users.add("admin", Role.VIEWER, now=container.clock.now())
    assert ensure_first_token(container).secret is not None
    assert container.users.list()[0].role is Role.ADMIN


def test_no_first_token_is_created_if_a_user_has_one(container: Container) -> None:
    now = container.clock.now()
    container.users.add("ada", Role.ADMIN, now=now)
    container.users.issue("ada", TokenKind.PROGRAM, "", now=now)
    assert ensure_first_token(container).secret is None
    assert not token_file(container.state_directory).exists()


def test_of_servers_that_start_at_once_one_makes_the_token(container: Container) -> None:
    made: list[str | None] = []
    hammer(lambda number: made.append(ensure_first_token(container).secret), threads=4)
    told = [secret for secret in made if secret is not None]
    assert len(told) == 1
    assert token_file(container.state_directory).read_text().strip() == told[0]
    assert len(container.users.tokens_of("admin")) == 1


def test_servers_that_start_at_once_with_a_token_that_is_kept_let_its_owner_in(container: Container) -> None:
    kept = token_file(container.state_directory)
    kept.write_text("0123456789abcdef" * 4)
    kept.chmod(0o600)

    class Meanwhile(SystemClock):
        """Another server starts between the first one's look for the token and its admin."""

        readings = 0

        def now(self) -> datetime:
            self.readings += 1
            if self.readings == 2:
                ensure_first_token(container)
            return super().now()

    container.clock = Meanwhile()
    assert ensure_first_token(container).lets_in
    assert len(container.users.tokens_of("admin")) == 1


def test_a_token_in_a_file_lets_its_owner_in(container: Container, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("t" * 43 + "\n")
    file.chmod(0o600)
    for _ in range(2):
        adopt_token(container, file)
    known = container.users.known_by("t" * 43, TokenKind.PROGRAM, now=container.clock.now())
    assert known is not None
    assert known[0].role is Role.ADMIN
    assert len(container.users.tokens_of("admin")) == 1


def test_a_readable_or_guessable_token_file_is_refused(container: Container, tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigurationError, match="cannot read the token"):
        adopt_token(container, file)
    file.write_text("t" * 64)
    file.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        adopt_token(container, file)
    for weak in ("short", "ü" * 50):
        file.write_text(weak)
        file.chmod(0o600)
        with pytest.raises((InvalidName, ConfigurationError)) as refused:
            adopt_token(container, file)
        assert weak not in str(refused.value)


def test_the_network_is_not_served_before_a_user_has_a_token(state: Path) -> None:
    with container_at(state, "server.host=0.0.0.0") as container:
        with pytest.raises(ConfigurationError, match="no user has a token yet"):
            ensure_guarded(container)
        now = container.clock.now()
        container.users.add("ada", Role.VIEWER, now=now)
        container.users.issue("ada", TokenKind.BROWSER, "not one for logging in", now=now)
        with pytest.raises(ConfigurationError):
            ensure_guarded(container)
        container.users.issue("ada", TokenKind.PROGRAM, "", now=now)
        ensure_guarded(container)
    with container_at(state, "server.host=::1") as container:
        ensure_guarded(container)


def test_a_port_that_is_taken_is_named_with_what_to_do() -> None:
    with listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with (
            pytest.raises(PortTaken, match=rf":{port}: another program"),
            listening("127.0.0.1", port),
        ):
            pass
    with listening("127.0.0.1", port):
        pass  # it is free again at once


def test_a_foreign_address_cannot_be_listened_on() -> None:
    with pytest.raises(PortTaken, match="not an address of this machine"), listening("192.0.2.1", 0):
        pass
    with pytest.raises(ConfigurationError, match=r"nowhere\.invalid"), listening("nowhere.invalid", 0):
        pass


def test_the_listening_address_is_a_url_for_a_browser() -> None:
    for host, shown in (
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("0.0.0.0", "127.0.0.1"),
        ("::1", "[::1]"),
        ("[::1]", "[::1]"),
        ("::", "[::1]"),
    ):
        with listening(host, 0) as listens:
            assert url_of(host, listens) == f"http://{shown}:{listens.getsockname()[1]}"
            everywhere = host in ("0.0.0.0", "::")
            assert places_of(host, listens).endswith(" and all other addresses of this machine") is everywhere


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_stopping_server_ends_streams_and_answers_running_requests(
    container: Container, number: signal.Signals, code: int
) -> None:
    secret = ensure_first_token(container).secret
    handlers = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    said: list[str] = []
    seen: list[object] = []

    def visit() -> None:
        found = waited_for(lambda: running_server(container.state_directory))
        assert isinstance(found, RunningServer)
        headers = {"Authorization": f"Bearer {secret}"}
        with httpx.Client(base_url=found.url, headers=headers, timeout=SECONDS_LIMIT) as client:
            seen.append(client.get("/api/session").json()["user"]["name"])
            with client.stream("GET", "/api/events/stream?after=0") as stream:
                lines = stream.iter_lines()
                seen.append(next(lines).partition(":")[0])
                os.kill(os.getpid(), number)
                seen.append(len([*lines]) > 0)

    visitor = threading.Thread(target=visit)
    visitor.start()
    with listening("127.0.0.1", 0) as listens:
        ended = serve(container, listens, plans_at_once=1, say=said.append)
    visitor.join(SECONDS_LIMIT)
    assert ended == code
    assert seen == ["admin", "retry", True]
    assert said[-1].startswith("stopping")
    assert not server_file(container.state_directory).exists()
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == handlers
    states = [row.state for row in container.worker_registry.list()]
    assert states in ([], ["gone"])


def test_a_stopping_server_requeues_running_jobs_after_the_drain_time(
    container: Container, tmp_path: Path
) -> None:
    secret = ensure_first_token(container).secret
    paint_shop(tmp_path / "shop")
    said: list[str] = []
    jobs: list[str] = []

    def visit() -> None:
        found = waited_for(lambda: running_server(container.state_directory))
        assert isinstance(found, RunningServer)
        headers = {"Authorization": f"Bearer {secret}"}
        argv = ["sh", "-c", "sleep 600"]
        plan = {"action": "builtin/command", "arguments": {"argv": argv}, "profile": "full-auto"}
        try:
            with httpx.Client(base_url=f"{found.url}/api", headers=headers, timeout=SECONDS_LIMIT) as client:
                client.post("/projects", json={"name": "shop"})
                shop = {"name": "shop", "project": "shop", "path": str(tmp_path / "shop")}
                client.post("/resources", json=shop)
                made = client.post("/plans", json={"resource": "shop", **plan}).json()["id"]
                waited_for(lambda: client.get(f"/plans/{made}/calls").json()["items"] or None)
                jobs.extend(job["id"] for job in client.get("/jobs").json()["items"])
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    visitor = threading.Thread(target=visit)
    visitor.start()
    with listening("127.0.0.1", 0) as listens:
        serve(container, listens, plans_at_once=1, say=said.append, drain_seconds=0.5)
    visitor.join(SECONDS_LIMIT)
    assert "waiting up to 0.5 s for 1 job, then requeuing" in said[-1]
    assert [container.jobs.get(job).state.value for job in jobs] == ["queued"]


def test_a_second_server_of_a_state_says_which_one_commands_go_through(container: Container) -> None:
    said: list[str] = []

    def stop(line: str) -> None:
        said.append(line)
        if line.startswith("listening"):
            os.kill(os.getpid(), signal.SIGTERM)

    with announced(container.state_directory, "http://the-first", "now"), listening("::1", 0) as listens:
        assert serve(container, listens, plans_at_once=0, say=stop) == 0
    assert said[0] == "commands still use the server at http://the-first"


def test_an_error_of_listen_has_a_remedy() -> None:
    told = {number: remedy_of(OSError(number, os.strerror(number))) for number in (13, 98, 99, 24)}
    assert "below 1024" in told[13]
    assert "another program" in told[98]
    assert "ip address" in told[99]
    assert told[24] == os.strerror(24)


def test_a_second_ctrl_c_waits_for_no_plan_and_gives_it_back(tmp_path: Path) -> None:
    with server_bench(tmp_path, worker__cancel_grace_seconds=20) as bench:
        bench.repository()
        request = {
            "resource": "shop",
            "action": "builtin/command",
            "arguments": {"argv": ["sleep", "600"]},
            "profile": "full-auto",
        }
        plan_id = bench.operator.post("/api/plans", json=request).json()["id"]
        said: list[str] = []

        def interrupt() -> None:
            jobs = bench.container.jobs
            waited_for(lambda: running_server(bench.state))
            waited_for(lambda: bench.container.plan_parts.calls.of_plan(plan_id))
            assert [job.state for job in jobs.list()] == [JobState.RUNNING]
            os.kill(os.getpid(), signal.SIGINT)
            waited_for(lambda: said[-1].startswith("stopping: waiting"))
            os.kill(os.getpid(), signal.SIGINT)

        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        with listening("127.0.0.1", 0) as listens:
            assert serve(bench.container, listens, plans_at_once=1, say=said.append) == 130
        interrupting.join(SECONDS_LIMIT)
        assert [job.state for job in bench.container.jobs.list()] == [JobState.QUEUED]
        assert bench.viewer.get(f"/api/plans/{plan_id}").json()["state"] in ("queued", "processing")


def test_later_starts_say_where_the_token_is_and_not_what_it_is(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use_home(monkeypatch, tmp_path, state)
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    with command_line(monkeypatch, capfd) as agents:
        for arguments in (("--port", "0"), ("--port", "0", "--host", "0.0.0.0")):
            stopping = threading.Thread(target=_stop_when_it_runs, args=(state,))
            stopping.start()
            ended = agents("serve", "--workers", "0", *arguments, typed="")
            stopping.join(SECONDS_LIMIT)
            assert ended.code == 0
            said.append(ended.err)
    secret = token_file(state).read_text().strip()
    assert (secret in said[0], secret in said[1]) == (True, False)
    assert str(token_file(state)) in said[1]
    assert "https" in said[1]


def _stop_when_it_runs(state: Path) -> None:
    waited_for(lambda: running_server(state))
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_process_that_serves_from_its_start_to_its_end(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use_home(monkeypatch, tmp_path, state)
    command = [sys.executable, "-m", "cleveragents", "serve", "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            rest = _visited(process, state, lambda port: _started_again(port, monkeypatch, capfd))
        finally:
            process.kill()
    assert "Traceback" not in rest
    assert not server_file(state).exists()
    assert modes(state)["server-token"] == 0o600


def _visited(process: subprocess.Popen[str], state: Path, at_its_port: Callable[[str], str]) -> str:
    """Return the last message of a server that served a request and was stopped."""
    assert process.stderr is not None
    said = iter(process.stderr.readline, "")
    # Where commands cannot be isolated, it begins with a warning.
    login = next(line for line in said if line.startswith("log in at"))
    listens = next(said)
    secret = token_file(state).read_text().strip()
    url = login.split()[3].removesuffix("/login")
    assert secret not in login + listens
    assert str(token_file(state)) in login
    assert url in listens
    assert httpx.get(f"{url}/healthz", timeout=SECONDS_LIMIT).status_code == 200
    headers = {"Authorization": f"Bearer {secret}"}
    who = httpx.get(f"{url}/api/session", headers=headers, timeout=SECONDS_LIMIT)
    assert who.json()["user"]["role"] == "admin"
    found = running_server(state)
    assert found is not None
    assert (found.url, found.pid) == (url, process.pid)
    assert secret not in at_its_port(url.rpartition(":")[2])
    process.send_signal(signal.SIGTERM)
    rest = process.stderr.read()
    assert process.wait(SECONDS_LIMIT) == 0, rest
    return rest


def _started_again(port: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    with command_line(monkeypatch, capfd) as agents:
        second = agents("serve", "--port", port)
    assert second.code == 1
    assert f"already runs at http://127.0.0.1:{port} (pid " in second.err
    return second.err


def test_the_serve_command_explains_its_refusals(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    use_home(monkeypatch, tmp_path, state)
    monkeypatch.chdir(tmp_path)
    with command_line(monkeypatch, capfd) as agents:
        open_to_all = agents("serve", "--host", "0.0.0.0")
        assert open_to_all.code == 2
        assert "agents user add --role admin NAME" in open_to_all.err
        assert agents("serve", "--port", "99999").code == 2
        nowhere = agents("serve", "--token-file", "nowhere")
        assert "cannot read the token (No such file or directory)" in nowhere.err
        (tmp_path / "token").write_text("weak")
        (tmp_path / "token").chmod(0o600)
        weak = agents("serve", "--host", "0.0.0.0", "--token-file", "token")
        assert (weak.code, "openssl rand" in weak.err) == (2, True)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            (tmp_path / "token").write_text("t" * 64)
            named = agents("serve", "--token-file", "token", "--port", port)
        assert (named.code, f"127.0.0.1:{port}" in named.err) == (1, True)
        assert agents("user", "list", "--format", "json").out.count('"admin"') == 2
