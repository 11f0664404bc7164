"""ACP agents that violate the protocol, send too much, or send nothing: each is ended with all its processes,
its changes are recorded, and the problem is reported.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cleveragents.actors.external.acp.updates import SessionBounds
from cleveragents.actors.model.actor import ProgressKind
from cleveragents.core.errors import BudgetExhausted, Cancelled, ToolRefused
from cleveragents.processes.bubblewrap import shared_probe
from tests.acp_bench import SessionBench, misbehaving, steps
from tests.plan_bench import PlanBench
from tests.processes import PidPipe, children, lives


@pytest.fixture
def bench(plans: PlanBench) -> SessionBench:
    return SessionBench(plans)


@pytest.fixture
def pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PidPipe]:
    """Return the process ids that agents announce through a named pipe."""
    pipe = PidPipe(tmp_path)
    monkeypatch.setenv("ACP_PIDS", str(pipe.path))
    yield pipe
    pipe.close()


PIDS: dict[str, Any] = {"environment": ("ACP_PIDS",)}


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("from_the_future", "version 77"),
        ("wants_a_login", "session/new failed: Authentication required"),
        ("answers_wrongly", "the agent's response to session/prompt is invalid"),
        ("says_no", r"it is Sunday \(come back tomorrow\)"),
        ("long_line", "a message that is too long"),
        ("babbles", "the agent was stopped: .*; its output: this is no"),
    ],
)
def test_the_problem_of_a_bad_agent_is_reported(bench: SessionBench, way: str, said: str) -> None:
    with pytest.raises(ToolRefused, match=said):
        bench.talk(misbehaving(way))
    assert bench.made() == ["acp failed"]


def test_an_agent_that_cannot_start_is_reported_with_its_output_but_no_secrets(
    bench: SessionBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIVEN_TOKEN", "hunter2-hunter2")
    with pytest.raises(
        ToolRefused, match="exited before it answered initialize; its output: I cannot start"
    ) as told:
        bench.talk(misbehaving("gone"), environment=("GIVEN_TOKEN",))
    assert "hunter2" not in str(told.value)
    with pytest.raises(ToolRefused, match=r"no-such-agent.*; install it: pip install it"):
        bench.talk({"argv": ("no-such-agent",), "prompt": ""}, install="pip install it")
    broken = tmp_path / "broken-agent"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with pytest.raises(ToolRefused, match="the agent cannot be started: No such file"):
        bench.talk({"argv": (str(broken),), "prompt": ""})


def test_a_silent_agent_is_not_waited_for_for_ever(bench: SessionBench) -> None:
    before = {child.pid for child in children(recursive=True)}
    with pytest.raises(ToolRefused, match=r"was not ready within 0\.5 s"):
        bench.talk(misbehaving("silent"), bounds=SessionBounds(start_seconds=0.5))
    assert {child.pid for child in children(recursive=True)} <= before


def test_a_flood_of_updates_is_bounded(bench: SessionBench) -> None:
    with pytest.raises(ToolRefused, match="sent too much output"):
        bench.talk(misbehaving("floods"), bounds=SessionBounds(messages=1_000))
    pieces = [update.text for update in bench.told if update.kind is ProgressKind.PIECE]
    assert max(map(len, pieces)) <= 4_000
    with pytest.raises(ToolRefused, match="sent too much output"):
        bench.talk(misbehaving("floods"), bounds=SessionBounds(bytes_=50_000))


def test_changes_before_an_agents_death_are_recorded(bench: SessionBench) -> None:
    with pytest.raises(
        ToolRefused, match="exited before it answered session/prompt; its output: out of order"
    ):
        bench.talk(misbehaving("dies"))
    assert bench.made() == ["acp failed", "acp ended half.txt"]
    bench.plans.ensure_consistent(bench.plan)
    said = bench.talk(steps(("tell_prompt",), ("read", "half.txt")))
    assert "An earlier session" in said
    assert said.endswith("read:half")


def test_invalid_messages_are_skipped_and_wrong_requests_refused(
    bench: SessionBench,
) -> None:
    assert bench.talk(misbehaving("odd_messages")) == "-32601 -32602 -32602"


@pytest.mark.parametrize("isolation", ["off", "auto"])
def test_nothing_outside_the_sandbox_is_touched(
    plans: PlanBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: Any
) -> None:
    bench = SessionBench(plans, isolation=isolation)
    (tmp_path / "elsewhere").mkdir()
    outside = tmp_path / "elsewhere/file.txt"
    monkeypatch.setenv("OUTSIDE", str(outside))
    said = bench.talk(misbehaving("writes_outside"), environment=("OUTSIDE",))
    assert said.split(" ", 6)[:6] == ["True"] * 6
    if isolation == "auto" and shared_probe.result().program is not None:
        assert said.endswith("could not")
        assert not outside.exists()
    assert not (bench.sandbox.root.parent / "escaped.txt").exists()
    refusals = [call for call in bench.calls() if call.tool in ("write", "read")]
    assert len(refusals) == 5
    assert all("use a path inside the sandbox" in str(call.error) for call in refusals)
    bench.plans.ensure_consistent(bench.plan)


def test_too_many_concurrent_requests_are_refused(bench: SessionBench) -> None:
    assert bench.talk(misbehaving("asks_too_much"), bounds=SessionBounds(requests=4)) == "some refused"
    assert bench.talk(steps(("terminals", 3)), bounds=SessionBounds(terminals=3), step="2.w.1") == "refused:1"


def test_during_a_command_other_requests_are_refused(bench: SessionBench) -> None:
    sessions = replace(bench.sessions(), patience_seconds=0.1)
    said = bench.talk(steps(("busy", "echo ready; sleep 600", "x.txt")), sessions=sessions)
    assert "command is still running" in said


def test_nothing_that_it_started_outlives_its_session(bench: SessionBench, pids: PidPipe) -> None:
    bench.talk(misbehaving("forks"), **PIDS)
    assert not any(map(lives, pids.read(2)))


def test_an_agent_with_too_many_processes_is_stopped(bench: SessionBench, pids: PidPipe) -> None:
    with pytest.raises(ToolRefused, match="its limit of 1 processes"):
        bench.talk({**misbehaving("keeps_writing"), "processes": 1}, **PIDS)
    assert not any(map(lives, pids.read(1)))
    bench.plans.ensure_consistent(bench.plan)


def test_an_agents_time_limit_is_separate_from_the_plans(bench: SessionBench, pids: PidPipe) -> None:
    with pytest.raises(ToolRefused, match="stopped at its time limit"):
        bench.talk(misbehaving("never_answers"), seconds=0.5)
    left = [30.0]

    def seconds_left() -> float:
        return left[0]

    def end() -> None:
        pids.read(1)
        left[0] = 0.0

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(BudgetExhausted):
        bench.talk(misbehaving("never_answers"), seconds_left=seconds_left, **PIDS)
    ending.join()


@pytest.mark.parametrize("way", ["silent", "never_answers", "keeps_writing"])
def test_a_cancel_ends_the_agent_and_its_changes_are_recorded(
    bench: SessionBench, pids: PidPipe, way: str
) -> None:
    found: list[int] = []

    def cancel() -> None:
        found.extend(pids.read(1))
        bench.token.cancel("not wanted")

    cancelling = threading.Thread(target=cancel)
    cancelling.start()
    with pytest.raises(Cancelled, match="not wanted"):
        bench.talk(misbehaving(way), **PIDS)
    cancelling.join()
    assert not any(map(lives, found))
    assert bench.calls()[0].error == "cancelled: not wanted"
    bench.plans.ensure_consistent(bench.plan)


def test_activity_after_a_cancel_is_recorded_but_not_a_success(bench: SessionBench, pids: PidPipe) -> None:
    cancelling = threading.Thread(target=lambda: (pids.read(1), bench.token.cancel("not wanted")))
    cancelling.start()
    with pytest.raises(Cancelled):
        bench.talk(steps(("announce", str(pids.path)), ("until_cancelled",)))
    cancelling.join()
    assert bench.made() == ["acp failed", "acp ended late.txt"]
    bench.plans.ensure_consistent(bench.plan)


def test_an_agent_that_does_not_exit_is_killed(bench: SessionBench) -> None:
    with pytest.raises(ToolRefused, match="stopped at its time limit"):
        bench.talk(misbehaving("stubborn"), seconds=0.5)


def test_a_missing_extra_names_what_to_install(bench: SessionBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    with pytest.raises(ToolRefused, match=r"pip install .*\[acp\]"):
        bench.talk(steps(("say", "x")))
