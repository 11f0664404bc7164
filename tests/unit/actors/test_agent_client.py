"""Requests of an agent and their answers: paths, commands, approvals, and earlier answers of a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cleveragents.actors.model.actor import ProgressKind
from cleveragents.actors.ports import AgentUpdate, PermissionRequest, TerminalCommand
from cleveragents.core.errors import Cancelled, NeedsHuman, ToolRefused
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.agents.client import RecordedAgentClient, command_arguments, text_of
from cleveragents.tools.timed_tool import EitherStop
from tests.acp_bench import STEP, SessionBench
from tests.plan_bench import PlanBench, new_repository


@pytest.fixture(scope="module")
def shared(engine: PlanBench, tmp_path_factory: pytest.TempPathFactory) -> SessionBench:
    """One plan for all tests that leave nothing behind that matters to another."""
    engine.repository = new_repository(tmp_path_factory.mktemp("agent_client") / "repository")
    return SessionBench(engine)


def agent_client_of(bench: SessionBench, policy: str = "full-auto", **facts: Any) -> RecordedAgentClient:
    session = facts.pop("session", 1)
    tools = bench.sessions(policy, **facts).tools
    answered = [call for call in bench.calls() if call.approval is not None or call.state.value == "asked"]
    return RecordedAgentClient(
        tools, agent="x", step=STEP, session=session, answered=answered, told=bench.told.append
    )


@pytest.mark.parametrize(
    ("kind", "policy", "allowed"),
    [
        ("read", "manual", True),
        ("search", "manual", True),
        ("think", "manual", True),
        ("edit", "review", True),
        ("move", "review", True),
        ("delete", "cautious+ci", False),
        ("execute", "supervised", True),
        ("execute", "review+ci", False),
        ("fetch", "ci", False),
        ("fetch", "full-auto", True),
        ("other", "review+ci", False),
        ("switch_mode", "supervised", True),
    ],
)
def test_approvals_and_denials_follow_the_policy(
    shared: SessionBench, kind: str, policy: str, allowed: bool
) -> None:
    wanted = PermissionRequest(kind, f"{kind} under {policy}", ("a.txt",), {"command": "x"})
    assert agent_client_of(shared, policy).permit(wanted) is allowed
    last = shared.calls()[-1]
    assert (last.tool, last.state.value) == ("acp", "ended" if allowed else "failed")
    assert last.arguments["title"] == wanted.title


@pytest.mark.parametrize("kind", ["delete", "execute", "other"])
def test_a_person_is_asked_where_the_policy_says_so_and_once_denied_it_stays_denied(
    shared: SessionBench, kind: str
) -> None:
    wanted = PermissionRequest(kind, f"ask for {kind}")
    for _ in range(2):  # unanswered, it is the same question
        with pytest.raises(NeedsHuman):
            agent_client_of(shared, "review").permit(wanted)
    assert len([call for call in shared.calls() if call.arguments.get("title") == wanted.title]) == 1
    shared.answer(granted=False)
    for session in (2, 3):
        assert agent_client_of(shared, "review", session=session).permit(wanted) is False


def test_an_approval_covers_one_call_with_the_same_arguments(plans: PlanBench) -> None:
    bench = SessionBench(plans)
    path = str(bench.sandbox.root / "b.txt")
    with pytest.raises(NeedsHuman):
        agent_client_of(bench, "manual").write(path, "beta\n")
    bench.answer(granted=True)
    second = agent_client_of(bench, "manual", session=2)
    with pytest.raises(NeedsHuman):
        second.write(path, "gamma\n")  # which was not approved
    second.write(path, "beta\n")
    assert bench.text("b.txt") == "beta\n"
    with pytest.raises(NeedsHuman):
        second.write(path, "beta\n")  # again
    third = agent_client_of(bench, "manual", session=3)
    third.write(path, "beta\n")  # the same session again, as far as the agent knows
    bench.answer(granted=False)
    fourth = agent_client_of(bench, "manual", session=4)
    fourth.write(path, "beta\n")
    with pytest.raises(ToolRefused, match="denied"):
        fourth.write(path, "beta\n")
    with pytest.raises(ToolRefused, match="denied by a person"):
        fifth = agent_client_of(bench, "manual", session=5)
        fifth.write(path, "beta\n")
        fifth.write(path, "beta\n")
    bench.plans.ensure_consistent(bench.plan)


def test_paths_lead_into_the_sandbox_or_are_refused(shared: SessionBench, tmp_path: Path) -> None:
    agent_client = agent_client_of(shared)
    root = shared.sandbox.root
    assert agent_client.read(str(root / "folder/c.txt"), None, None) == "gamma\n"
    assert agent_client.read(f"{root}//folder/./c.txt", 1, 1) == "gamma\n"
    (tmp_path / "link").symlink_to(root)
    beside = (str(tmp_path / "link/b.txt"), f"{root}/../x", f"{root}-beside/x")
    for path in ("/etc/passwd", *beside, "b.txt", str(root)):
        with pytest.raises(ToolRefused):
            agent_client.read(path, None, None)
        with pytest.raises(ToolRefused):
            agent_client.write(path, "x")
    with pytest.raises(ToolRefused, match="'/etc/passwd' is outside the sandbox"):
        agent_client.read("/etc/passwd", None, None)


def test_a_command_killed_by_the_agent_ends_its_call(plans: PlanBench) -> None:
    bench = SessionBench(plans)
    ended, heard = CancellationToken(), bytearray()

    def hear(chunk: bytes) -> None:
        heard.extend(chunk)
        if b"ready" in heard:
            ended.cancel("enough")

    agent_client = agent_client_of(bench)
    assert agent_client.run(TerminalCommand("echo ready; echo x > made.txt; sleep 600"), ended, hear) is None
    assert bench.calls()[-1].state.value == "ended"
    assert agent_client.run(TerminalCommand("exit 3"), CancellationToken(), hear) == 3
    there = str(agent_client.directory / "folder")
    assert agent_client.run(TerminalCommand("pwd", directory=there), CancellationToken(), hear) == 0
    assert heard.decode().endswith("/folder\n")
    with pytest.raises(ToolRefused, match="no such directory"):
        agent_client.run(
            TerminalCommand("pwd", directory=str(agent_client.directory / "nowhere")),
            CancellationToken(),
            hear,
        )
    with pytest.raises(ToolRefused):
        agent_client.run(TerminalCommand("pwd", directory="/"), CancellationToken(), hear)
    bench.plans.ensure_consistent(bench.plan)
    assert AgentUpdate(ProgressKind.TOOL, "command exit 3") in bench.told


def test_changes_during_a_command_are_not_recorded_as_the_agents_own(plans: PlanBench) -> None:
    bench = SessionBench(plans)
    agent_client = agent_client_of(bench)

    def hear(chunk: bytes) -> None:
        agent_client.did("something")

    agent_client.run(TerminalCommand("echo x > made.txt; echo ready"), CancellationToken(), hear)
    assert bench.made() == ["command ended made.txt"]
    (bench.sandbox.root / "own.txt").write_text("x")
    agent_client.did("more")
    agent_client.did("nothing")
    agent_client.close()
    assert bench.made() == ["command ended made.txt", "acp ended own.txt"]
    assert bench.calls()[-1].arguments == {"agent": "x", "changed": "more"}


@pytest.mark.parametrize(
    ("command", "where", "works_in", "arguments"),
    [
        (TerminalCommand("make"), "", "", {"argv": ("make",), "directory": ""}),
        (TerminalCommand("make", ("-j", "a b")), "x", "", {"argv": ("make", "-j", "a b"), "directory": "x"}),
        (TerminalCommand("a | b"), "", "", {"script": "a | b", "directory": ""}),
        (
            TerminalCommand("a | b", (), (("N", "1"),)),
            "",
            "",
            {"argv": ("env", "N=1", "/bin/sh", "-c", "a | b"), "directory": ""},
        ),
        (TerminalCommand("a"), "pkg", "pkg", {"argv": ("a",), "directory": ""}),
        (TerminalCommand("a"), "pkg/in", "pkg", {"argv": ("a",), "directory": "in"}),
        (TerminalCommand("a"), "other", "pkg", {"argv": ("a",), "directory": "../other"}),
    ],
)
def test_a_terminals_command_becomes_one_of_ours(
    command: TerminalCommand, where: str, works_in: str, arguments: dict[str, object]
) -> None:
    made = command_arguments(command, where, works_in)
    assert made.pop("timeout_seconds") == 8 * 3600
    assert made == arguments


def test_a_text_that_is_cut_is_not_given() -> None:
    whole: dict[str, Any] = {"path": "x", "content": "a\n", "encoding": "utf-8", "note": ""}
    whole |= {"truncated": False, "total_lines": 1}
    assert text_of(whole, None) == "a\n"
    part = {**whole, "truncated": True, "note": "lines 2 to 9 follow"}
    assert text_of(part, 1) == "a\n"
    for cut, limit in (
        (part, None),
        ({**part, "note": "no room for more; continue with offset 7"}, 9),
        ({**part, "content": "x" * 200_000}, 1),
        ({**whole, "encoding": "unknown"}, None),
    ):
        with pytest.raises(ToolRefused):
            text_of(cut, limit)


def test_either_of_two_signals_stops() -> None:
    one, other = CancellationToken(), CancellationToken()
    either = EitherStop(one, other)
    either.raise_if_cancelled()
    assert not either.wait(0.01)
    other.cancel("that one")
    assert (either.is_cancelled, either.reason, either.wait(None)) == (True, "that one", True)
    one.cancel("this one")
    assert either.reason == "this one"
    with pytest.raises(Cancelled):
        either.raise_if_cancelled()
