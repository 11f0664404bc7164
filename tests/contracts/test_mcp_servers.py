"""Real MCP servers: any behaviour becomes an answer, and no process is left."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest

from cleveragents.core.errors import (
    Cancelled,
    Closed,
    InvalidToolCall,
    NotTrusted,
    ToolRefused,
    UnknownTool,
)
from cleveragents.core.policy import Capability
from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.bubblewrap import BubblewrapProbe, shared_probe
from cleveragents.processes.guarded_runner import Isolation
from cleveragents.processes.stdio_process import MESSAGE_BYTES
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.mcp.configuration import McpConfiguration
from cleveragents.tools.mcp.connection import ServerTimeouts
from cleveragents.tools.mcp.server_entry import McpServer
from cleveragents.tools.mcp.tools import McpTools
from tests.mcp_bench import PROGRAMS, called, configured, misbehaving, open_permitted, place, well_behaved
from tests.processes import PidPipe, wait_gone

TOKEN = "tok-8d1f0c2b7a9e"
ISOLATION = [
    "off",
    pytest.param(
        "required",
        marks=pytest.mark.skipif(shared_probe.result().program is None, reason="there is no bubblewrap here"),
    ),
]
SUPERVISOR = PsutilProcessSupervisor()
QUICK = ServerTimeouts(start_seconds=30, list_seconds=30, call_seconds=0.5)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sandbox")


@pytest.fixture(scope="module")
def good(sandbox: Path) -> Iterator[McpTools]:
    other = replace(misbehaving("tells"), name="other", own=False)
    servers = configured(well_behaved(GIVEN_TOKEN=TOKEN), other)
    with open_permitted(servers, place(sandbox)) as tools:
        yield tools


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[PidPipe]:
    pipe = PidPipe(tmp_path)
    yield pipe
    pipe.close()


def refused(tools: McpTools, sandbox: Path, name: str = "mcp__bad__work", **arguments: object) -> str:
    with pytest.raises(ToolRefused) as found:
        called(tools, name, sandbox, **arguments)
    return str(found.value)


def test_a_tool_returns_its_servers_answer(good: McpTools, sandbox: Path) -> None:
    assert called(good, "mcp__good__scribble", sandbox, path="a.txt", text="hello")["text"] == "wrote a.txt"
    assert (sandbox / "a.txt").read_text() == "hello"
    assert called(good, "mcp__good__look", sandbox, path="a.txt") == {"text": "hello"}
    assert called(good, "mcp__good__add", sandbox, a=1, b=2) == {"text": "3"}
    assert called(good, "mcp__good__pair", sandbox)["structured"] == {"a": 1, "b": "two"}
    assert "image/png" in str(called(good, "mcp__good__picture", sandbox)["text"])
    assert len(str(called(good, "mcp__good__long", sandbox)["text"])) < 250_000


def test_a_refusing_tool_does_not_end_its_server(good: McpTools, sandbox: Path) -> None:
    assert "refuse" in refused(good, sandbox, "mcp__good__refuse")
    assert called(good, "mcp__good__add", sandbox, a=2, b=2) == {"text": "4"}


def test_invalid_arguments_are_reported_before_asking_for_approval(good: McpTools, sandbox: Path) -> None:
    tool = good.get("mcp__good__add")
    with pytest.raises(InvalidToolCall, match=r"invalid argument 'a'.*'b' is a required property"):
        good.capability_of(tool, {"a": "one"}, ConfinedFiles(sandbox))
    with pytest.raises(InvalidToolCall):
        called(good, "mcp__good__add", sandbox)


def test_only_the_users_own_servers_are_trusted_to_only_read(good: McpTools) -> None:
    own, theirs = good.get("mcp__good__look").spec, good.get("mcp__other__work").spec
    writing = good.get("mcp__good__scribble").spec
    assert (own.capability, own.writes, own.runs_commands) == (Capability.READ, False, False)
    for spec in (theirs, writing):
        assert (spec.capability, spec.writes, spec.runs_commands) == (Capability.COMMAND, True, True)
    assert own.input_schema["properties"] == {"path": {"title": "Path", "type": "string"}}


def test_names_are_valid_for_models_and_patterns_select_by_server(good: McpTools) -> None:
    names = good.names()
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in names)
    odd = next(name for name in names if name.startswith("mcp__good__odd_name"))
    assert good.get(odd).spec.name == odd
    assert good.select("mcp__*") == names
    assert good.select("*__add") == ("mcp__good__add",)
    assert good.select("mcp__*__w*") == ("mcp__other__work",)
    assert good.select("mcp__other__*") == ("mcp__other__work",)
    assert [spec.name for spec in good.specs()] == list(names)
    assert good.problems() == ()
    with pytest.raises(UnknownTool, match="mcp__good__add"):
        good.get("mcp__good__ad")
    for unknown in ("mcp__nobody__add", "add"):
        with pytest.raises(UnknownTool, match="mcp__good__"):
            good.get(unknown)


def test_a_server_gets_only_its_variables_and_secrets_are_masked(good: McpTools, sandbox: Path) -> None:
    told = called(good, "mcp__good__variable", sandbox, which="GIVEN_TOKEN")
    assert told["text"] == "***"
    assert called(good, "mcp__good__variable", sandbox, which="PYTHONASYNCIODEBUG")["text"] == "(not set)"


@pytest.mark.parametrize("isolation", ISOLATION)
def test_no_process_of_a_server_outlives_its_stage(
    isolation: Isolation, tmp_path: Path, pids: PidPipe
) -> None:
    baseline = {process.pid for process in psutil.Process().children(recursive=True)}
    there = place(tmp_path, isolation, **SUPERVISOR.environment(str(tmp_path)))
    with open_permitted(configured(misbehaving("forks", MCP_PIDS=str(pids.path))), there) as tools:
        assert SUPERVISOR.alive(str(tmp_path)) == []
        called(tools, "mcp__bad__work", tmp_path)
        count = len(pids.read(3))
        assert len(SUPERVISOR.alive(str(tmp_path))) >= count
    assert SUPERVISOR.alive(str(tmp_path)) == []
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= baseline


def test_a_killed_guard_leaves_no_process_of_the_server(tmp_path: Path, pids: PidPipe) -> None:
    there = place(tmp_path, **SUPERVISOR.environment(str(tmp_path)))
    others = psutil.Process().children()
    with open_permitted(configured(misbehaving("forks", MCP_PIDS=str(pids.path))), there) as tools:
        called(tools, "mcp__bad__work", tmp_path)
        pids.read(3)
        (guard,) = [child for child in psutil.Process().children() if child not in others]
        guard.kill()
        guard.wait(30)
    assert SUPERVISOR.alive(str(tmp_path)) == []


def test_an_endless_list_is_cut_and_a_too_large_tool_left_out(tmp_path: Path) -> None:
    with open_permitted(configured(misbehaving("endless_list")), place(tmp_path)) as tools:
        assert tools.names() == ("mcp__bad__work",)
    with open_permitted(configured(misbehaving("oversized")), place(tmp_path)) as tools:
        assert tools.names() == ()
        assert "more than 50000 characters" in refused(tools, tmp_path)
        assert "more than 50000 characters" in str(tools.problems()[0])


def test_a_missing_package_is_reported_with_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with open_permitted(configured(misbehaving("says_no")), place(tmp_path)) as tools:
        assert "[mcp]'" in refused(tools, tmp_path)


def test_after_many_stages_threads_and_processes_are_as_before(tmp_path: Path) -> None:
    def all_there_is() -> tuple[int, int]:
        return threading.active_count(), len(psutil.Process().children(recursive=True))

    before = all_there_is()
    for _ in range(5):
        with open_permitted(configured(misbehaving("says_no")), place(tmp_path)) as tools:
            assert "it is Sunday" in refused(tools, tmp_path)
        assert all_there_is() == before


def test_an_unused_server_is_never_started(tmp_path: Path, pids: PidPipe) -> None:
    threads = threading.active_count()
    with open_permitted(configured(misbehaving("silent", MCP_PIDS=str(pids.path))), place(tmp_path)) as tools:
        with pytest.raises(UnknownTool):
            tools.get("read")
        assert threading.active_count() == threads
    with pytest.raises(Closed):
        tools.get("mcp__bad__work")


def test_a_server_that_dies_is_reported_and_restarted_once(tmp_path: Path) -> None:
    with open_permitted(configured(misbehaving("dies")), place(tmp_path)) as tools:
        for _ in range(2):
            said = refused(tools, tmp_path)
            assert "ended during the call to 'work'" in said
            assert "out of order" in said
        assert "not started a third time" in refused(tools, tmp_path)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("floods", "too long"),
        ("babbles", "not messages"),
        ("answers_wrongly", "validation error"),
    ],
)
def test_a_protocol_violation_is_a_failed_answer(way: str, words: str, tmp_path: Path) -> None:
    with open_permitted(configured(misbehaving(way)), place(tmp_path)) as tools:
        assert words in refused(tools, tmp_path)


def test_a_timed_out_call_ends_its_server(tmp_path: Path) -> None:
    there = place(tmp_path, **SUPERVISOR.environment(str(tmp_path)))
    with open_permitted(configured(misbehaving("never_answers")), there, patience=QUICK) as tools:
        assert "took longer than 0.5 s" in refused(tools, tmp_path)
        assert SUPERVISOR.alive(str(tmp_path)) == []


def test_a_server_that_never_becomes_ready_is_ended(tmp_path: Path) -> None:
    there = place(tmp_path, **SUPERVISOR.environment(str(tmp_path)))
    patience = ServerTimeouts(start_seconds=0.5)
    with open_permitted(configured(misbehaving("silent")), there, patience=patience) as tools:
        assert tools.names() == ()
        assert SUPERVISOR.alive(str(tmp_path)) == []
        with pytest.raises(ToolRefused, match="was not ready within"):
            tools.select("mcp__bad__*")


def test_a_failed_start_is_reported_without_secrets(tmp_path: Path) -> None:
    server = misbehaving("gone", GIVEN_TOKEN=TOKEN)
    with open_permitted(configured(server), place(tmp_path)) as tools:
        assert tools.names() == ()
        (problem,) = tools.problems()
    assert "ended before it was ready; its output: I cannot start with ***" in str(problem)
    assert TOKEN not in repr(server)


def test_a_missing_program_is_named_with_its_file(tmp_path: Path) -> None:
    server = McpServer("bad", "mcp.json", True, ("no-such-program",))
    with open_permitted(configured(server), place(tmp_path)) as tools:
        said = refused(tools, tmp_path)
    assert "no-such-program" in said
    assert "mcp.json" in said


def test_a_cancellation_ends_the_call_and_its_server(tmp_path: Path, pids: PidPipe) -> None:
    token = CancellationToken()
    server = misbehaving("never_answers", MCP_PIDS=str(pids.path))
    outcome: list[BaseException] = []

    def call() -> None:
        try:
            called(tools, "mcp__bad__work", tmp_path, token)
        except Cancelled as error:
            outcome.append(error)

    with open_permitted(configured(server), place(tmp_path)) as tools:
        thread = threading.Thread(target=call)
        thread.start()
        working = pids.read(1)
        token.cancel("enough")
        thread.join(30)
        assert "enough" in str(outcome[0])
        assert wait_gone(working) == []


def test_a_cancellation_ends_a_running_start(tmp_path: Path, pids: PidPipe) -> None:
    token = CancellationToken()
    server = misbehaving("silent", MCP_PIDS=str(pids.path))
    outcome: list[BaseException] = []

    def start() -> None:
        try:
            tools.names()
        except Cancelled as error:
            outcome.append(error)

    with open_permitted(configured(server), place(tmp_path), token) as tools:
        thread = threading.Thread(target=start)
        thread.start()
        waiting = pids.read(1)
        token.cancel("enough")
        thread.join(30)
        assert outcome
        assert wait_gone(waiting) == []


@pytest.mark.skipif(shared_probe.result().program is None, reason="there is no bubblewrap here")
def test_an_isolated_read_only_server_cannot_change_the_sandbox_or_see_the_home(tmp_path: Path) -> None:
    for writable, words in ((True, "wrote"), (False, "could not write")):
        there = replace(place(tmp_path, "required"), writable=writable)
        with open_permitted(configured(misbehaving("tells")), there) as tools:
            told = called(tools, "mcp__bad__work", tmp_path)["text"]
        assert told == f"{words} in {tmp_path}, at home in /home/agent"


def test_refuses_required_isolation_without_bubblewrap(tmp_path: Path) -> None:
    there = replace(place(tmp_path, "required"), probe=BubblewrapProbe("no-bubblewrap"))
    with open_permitted(configured(misbehaving("says_no")), there) as tools:
        assert "isolation is required" in refused(tools, tmp_path)


def test_an_unisolated_server_starts_with_the_users_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    free = replace(misbehaving("tells"), isolated=False, directory=str(elsewhere))
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    with open_permitted(configured(free), place(sandbox, "auto")) as tools:
        told = called(tools, "mcp__bad__work", sandbox)["text"]
    assert told == f"wrote in {elsewhere}, at home in {tmp_path}"
    with open_permitted(configured(replace(free, isolated=True)), place(sandbox, "auto")) as tools:
        assert "not in the sandbox" in refused(tools, sandbox)


def test_an_untrusted_server_is_reported_and_not_started(tmp_path: Path) -> None:
    untrusted = McpConfiguration(untrusted=MappingProxyType({"theirs": "/r/.mcp.json"}), notes=("see there",))
    with open_permitted(untrusted, place(tmp_path)) as tools:
        for ask in (tools.get, tools.select):
            with pytest.raises(NotTrusted, match="is not trusted"):
                ask("mcp__theirs__*")
        assert tools.select("mcp__*") == ()
        assert [str(problem) for problem in tools.problems()] == ["mcp: see there"]


@pytest.fixture
def http_port() -> Iterator[int]:
    program = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "over_http.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"HTTP_TOKEN": TOKEN},
        text=True,
    )
    assert program.stdout is not None
    try:
        yield int(program.stdout.readline())
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


def test_a_remote_server_gets_its_headers_which_stay_secret(
    http_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THE_KEY", TOKEN)
    server = McpServer(
        "far",
        "mcp.json",
        True,
        url=f"http://127.0.0.1:{http_port}/mcp",
        headers=MappingProxyType({"Authorization": "Bearer ${THE_KEY}"}),
    )
    with open_permitted(configured(server), place(tmp_path)) as tools:
        spec = tools.get("mcp__far__echo").spec
        assert (spec.capability, spec.writes) == (Capability.NETWORK, True)
        assert called(tools, "mcp__far__echo", tmp_path, text=f"say {TOKEN}")["text"] == "say ***"
    wrong = replace(server, headers=MappingProxyType({"Authorization": "Bearer wrong-0123456789"}))
    with open_permitted(configured(wrong), place(tmp_path)) as tools:
        said = refused(tools, tmp_path, "mcp__far__echo")
    assert "cannot be used" in said
    printed = capfd.readouterr()
    for secret in (TOKEN, "wrong-0123456789"):
        assert secret not in said + repr(server) + repr(wrong) + printed.out + printed.err


def test_an_http_answer_is_limited_in_size(http_port: int, tmp_path: Path) -> None:
    server = McpServer(
        "far",
        "mcp.json",
        True,
        url=f"http://127.0.0.1:{http_port}/mcp",
        headers=MappingProxyType({"Authorization": f"Bearer {TOKEN}"}),
    )
    with open_permitted(configured(server), place(tmp_path)) as tools:
        assert len(called(tools, "mcp__far__flood", tmp_path, size=100_000)["text"]) == 100_000
        said = refused(tools, tmp_path, "mcp__far__flood", size=MESSAGE_BYTES)
        assert "too long" in said
    compressed = replace(server, url=f"http://127.0.0.1:{http_port}/compressed")
    with open_permitted(configured(compressed), place(tmp_path)) as tools:
        assert "compressed answer" in refused(tools, tmp_path, "mcp__far__echo")


def test_an_unreachable_url_is_a_failed_answer(tmp_path: Path) -> None:
    server = McpServer("far", "mcp.json", True, url="http://127.0.0.1:9/mcp")
    with open_permitted(configured(server), place(tmp_path)) as tools:
        assert "ConnectError" in refused(tools, tmp_path, "mcp__far__echo")
