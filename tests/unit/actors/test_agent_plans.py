"""Plans with external agents: records, access, and how they are ended."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import pytest

from cleveragents.actors.model.actor import END, Actor, StateKey, ToolNode
from cleveragents.core.tool import CallState
from cleveragents.models.model.budget import BudgetLimits
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.processes.bubblewrap import shared_probe
from cleveragents.tools.files.confined_files import ConfinedFiles
from tests.agent_bench import AgentBench, agent_bench, agent_node, external
from tests.command_trees import alive, end_by_hand
from tests.plan_bench import FILES

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
ERRORED = (Phase.EXECUTE, PlanState.ERRORED)
WAITING = (Phase.EXECUTE, PlanState.WAITING)
EDITED = {**{path: text for path, text in FILES.items() if path != "b.txt"}, "a.txt": "edited\n"}
_tokens = count(time.monotonic_ns())

needs_bubblewrap = pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)
either = pytest.mark.parametrize("isolation", ["off", pytest.param("required", marks=needs_bubblewrap)])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[AgentBench]:
    with agent_bench(tmp_path) as made:
        yield made


@pytest.fixture
def token() -> Iterator[str]:
    token = next(_tokens)
    yield str(token)
    end_by_hand(token)


def only_call(bench: AgentBench, plan: Plan) -> tuple[str, CallState, str]:
    (call,) = bench.calls(plan)
    return call.tool, call.state, call.error or ""


# --- records ------------------------------------------------------------------------------------------------


@either
def test_an_agents_changes_are_recorded_under_its_call(tmp_path: Path, isolation: str) -> None:
    with agent_bench(tmp_path, isolation=isolation) as bench:
        plan = bench.given("edits")
        assert plan.phase_state == COMPLETE, plan.error
        assert only_call(bench, plan) == ("agent", CallState.ENDED, "")
        assert bench.files(plan) == {**EDITED, "told.txt": "Do it: a goal"}
        bench.ensure_consistent(plan)
        (call,) = bench.calls(plan)
        changes = bench.parts.history.changes(plan.id)
        assert {change.entry.tool_call_id for change in changes} == {call.call_id}
        assert {path for change in changes for path in [change.entry.path]} == {"a.txt", "b.txt", "told.txt"}
    assert bench.output == b"I did it\n"


@pytest.mark.parametrize("way", ["argument", "file", "last argument"])
def test_an_agent_gets_its_prompt_as_an_argument_or_in_a_file(bench: AgentBench, way: str) -> None:
    words = {"argument": ["{prompt}"], "file": ["--file", "{prompt_file}"], "last argument": []}[way]
    plan = bench.given("edits", *words, prompt_by=way.split()[-1])
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.files(plan)["told.txt"] == "Do it: a goal"


def test_a_prompt_that_no_argument_holds_is_refused_with_what_to_do(bench: AgentBench) -> None:
    long = "x" * (128 << 10)
    plan = bench.given("edits", prompt=long, prompt_by="argument")
    assert plan.phase_state == ERRORED
    assert "use `prompt_by: stdin` or `file`" in str(plan.error)
    assert bench.files(plan) == FILES
    assert bench.files(bench.given("edits", prompt=long))["told.txt"] == long


def test_the_end_of_what_it_said_is_kept_and_bounded(bench: AgentBench) -> None:
    plan = bench.given("floods")
    assert plan.phase_state == COMPLETE, plan.error
    (call,) = bench.calls(plan)
    assert isinstance(call.result, Mapping)
    output = str(call.result["output"])
    assert output.endswith("the end\n")
    assert output.startswith("[the first ")
    assert len(output) < 70_000
    assert len(bench.output) > 2_000_000


def test_an_agents_answer_reaches_the_next_node(bench: AgentBench) -> None:
    first = agent_node("tells", name="first", output="said", next=("second",))
    second = ToolNode(name="second", tool="write", arguments={"path": "said.txt", "content": "${said}"})
    actor = Actor(
        name="tests/graph", entry="first", nodes=(first, second), state=(StateKey("said"), StateKey("report"))
    )
    plan = bench.work(bench.task(actor))
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.files(plan)["said.txt"] == "home=[]\n"
    assert [call.tool for call in bench.calls(plan)] == ["agent", "write"]


# --- access -------------------------------------------------------------------------------------------------


@either
def test_an_agent_gets_what_is_named_and_its_secrets_are_not_recorded(
    tmp_path: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "user"
    (home / ".agent").mkdir(parents=True)
    (home / ".agent" / "settings").write_text("")
    (home / ".netrc").write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SOME_API_KEY", "quiteordinarywords")
    monkeypatch.setenv("OTHER_API_KEY", "notgivenout")
    with agent_bench(tmp_path / "bench", isolation=isolation) as bench:
        plan = bench.given(
            *("tells", "SOME_API_KEY", "OTHER_API_KEY", "SET"),
            environment=("SOME_API_KEY",),
            variables={"SET": "so"},
            home=(".agent", ".missing"),
        )
        assert plan.phase_state == COMPLETE, plan.error
        told = bench.output.decode()
        assert "SOME_API_KEY=***\nOTHER_API_KEY=None\nSET=so\n" in told
        assert "home=['.agent', '.agent/settings']" in told
        (call,) = bench.calls(plan)
        assert "quiteordinarywords" not in str(call.result)
        assert "SOME_API_KEY=***" in str(call.result)


def test_a_missing_program_is_reported_before_any_approval(bench: AgentBench) -> None:
    facts = {"argv": ("no-such-agent", "-p"), "network": True, "install": "buy one"}
    plan = bench.given("", policy="supervised", **facts)
    assert plan.phase_state == ERRORED
    assert "program 'no-such-agent' not found on your PATH; install it: buy one" in str(plan.error)
    assert "model" not in str(plan.error)


def test_the_network_is_available_after_approval(bench: AgentBench) -> None:
    plan = bench.given("edits", policy="supervised", network=True)
    assert plan.phase_state == WAITING
    assert bench.files(plan) == FILES
    plan = bench.answer(plan, True)
    assert plan.phase_state == COMPLETE, plan.error
    assert only_call(bench, plan) == ("agent", CallState.ENDED, "")


def test_an_agent_does_not_run_without_approval(bench: AgentBench) -> None:
    asked = bench.given("edits", policy="supervised", network=True)
    plan = bench.answer(asked, False)
    assert plan.phase_state == ERRORED
    assert "denied" in str(plan.error)
    assert bench.files(plan) == FILES
    denied = bench.given("edits", policy="cautious", network=True)
    assert "network" in str(denied.error)
    assert bench.files(denied) == FILES


@needs_bubblewrap
@pytest.mark.skipif(len(socket.if_nameindex()) < 2, reason="there is no network here to be kept from")
def test_an_agent_has_the_network_only_if_it_asks_and_is_approved(tmp_path: Path) -> None:
    look = (sys.executable, "-c", "import socket; print(len(socket.if_nameindex()))")
    with agent_bench(tmp_path, isolation="required") as bench:
        plan = bench.given("", argv=look, policy="supervised")
        assert plan.phase_state == COMPLETE, plan.error
        plan = bench.answer(bench.given("", argv=look, network=True, policy="supervised"), True)
        assert plan.phase_state == COMPLETE, plan.error
    assert bench.output.decode().split() == ["1", str(len(socket.if_nameindex()))]


# --- forbidden actions --------------------------------------------------------------------------------------


@needs_bubblewrap
def test_an_isolated_agent_cannot_write_outside(tmp_path: Path) -> None:
    with agent_bench(tmp_path, isolation="required") as bench:
        target = bench.repository / "a.txt"
        plan = bench.given("writes-outside", str(target))
        assert plan.phase_state == COMPLETE, plan.error
        assert b"not allowed" in bench.output
        assert target.read_text() == FILES["a.txt"]
        assert bench.files(plan) == {**FILES, "inside.txt": "inside\n"}


def test_files_written_outside_without_isolation_are_not_the_plans_changes(
    bench: AgentBench, tmp_path: Path
) -> None:
    target = tmp_path / "outside.txt"
    plan = bench.given("writes-outside", str(target))
    assert plan.phase_state == COMPLETE, plan.error
    assert {change.entry.path for change in bench.parts.history.changes(plan.id)} == {"inside.txt"}


def test_an_invariant_holds_for_other_agents_too(bench: AgentBench) -> None:
    actor = external("edits")
    plan = bench.work(bench.task(actor, invariants=("never touch b.txt",)))
    assert plan.phase_state == ERRORED
    assert "reverted" in str(plan.error)
    assert bench.files(plan) == FILES


# --- endings ------------------------------------------------------------------------------------------------


def test_an_exit_code_that_is_not_expected_stops_the_actor_and_keeps_what_was_done(bench: AgentBench) -> None:
    plan = bench.given("fails")
    assert plan.phase_state == ERRORED
    assert "the agent exited with code 7; last line of output: I cannot go on" in str(plan.error)
    tool, state, error = only_call(bench, plan)
    assert (tool, state) == ("agent", CallState.FAILED)
    assert "exited with code 7" in error
    assert bench.files(plan) == {**FILES, "half.txt": "half\n"}
    bench.ensure_consistent(plan)


def test_an_exit_code_may_be_expected(bench: AgentBench) -> None:
    plan = bench.given("fails", "3", expect_exit=(0, 3))
    assert plan.phase_state == COMPLETE, plan.error


def test_a_failed_run_is_made_again_when_the_plan_is_resumed(bench: AgentBench, tmp_path: Path) -> None:
    plan = bench.given("fails-once", str(tmp_path / "failed"))
    assert plan.phase_state == ERRORED
    plan = bench.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.files(plan) == {**EDITED, "told.txt": "Do it: a goal"}, "from before the failed run"
    bench.ensure_consistent(plan)
    states = [call.state for call in bench.calls(plan) if call.tool == "agent"]
    assert states == [CallState.REVERTED, CallState.ENDED]


def test_only_the_node_that_failed_is_run_again(bench: AgentBench, tmp_path: Path) -> None:
    before = ToolNode(
        name="before", tool="write", arguments={"path": "before.txt", "content": "once\n"}, next=("work",)
    )
    failing = agent_node("fails-once", str(tmp_path / "failed"))
    actor = Actor(name="tests/two", entry="before", nodes=(before, failing), state=(StateKey("report"),))
    plan = bench.resume(bench.work(bench.task(actor)))
    assert plan.phase_state == COMPLETE, plan.error
    assert [call.tool for call in bench.calls(plan) if call.step is not None] == ["write", "agent", "agent"]
    assert bench.files(plan)["before.txt"] == "once\n"


def test_a_time_limit_ends_an_agent_with_all_its_processes(bench: AgentBench, token: str) -> None:
    plan, seconds = bench.given("stays", token, seconds=1.5), 1.5
    while b"ready" not in bench.output and seconds < 60.0:  # its time limit passed before it had started
        seconds *= 4
        plan = bench.given("stays", token, seconds=seconds)
    assert plan.phase_state == ERRORED
    assert "it reached its time limit; last line of output: ready" in str(plan.error)
    assert alive(int(token)) == []
    assert bench.files(plan)["staying.txt"] == "staying\n"


def test_the_plans_own_time_counts_besides(bench: AgentBench, token: str) -> None:
    plan = bench.work(bench.task(external("stays", token), limit_seconds=2.0))
    assert plan.phase_state in (ERRORED, WAITING)
    assert alive(int(token)) == []
    bench.ensure_consistent(plan)


def test_an_agent_with_a_raised_time_limit_runs_again(bench: AgentBench, token: str) -> None:
    """The advice for a plan that reached its time limit works."""
    own, plans = 3.0, 2.0
    plan = bench.work(bench.task(external("stays", token, seconds=own), limits=BudgetLimits(seconds=plans)))
    while b"ready" not in bench.output and own < 60.0:  # the plan's time limit passed before it had started
        own, plans = own * 4, plans * 4
        plan = bench.work(
            bench.task(external("stays", token, seconds=own), limits=BudgetLimits(seconds=plans))
        )
    assert plan.phase_state == WAITING, plan
    bench.parts.actor_parts.raise_limits(plan, BudgetLimits(seconds=600.0))
    again = bench.work(bench.parts.lifecycle.resume(plan))
    assert [call.state.value for call in bench.calls(again) if call.tool == "agent"] == ["reverted", "failed"]
    assert alive(int(token)) == []


def test_an_agent_with_too_many_processes_is_stopped_and_reported(bench: AgentBench, token: str) -> None:
    plan = bench.given("crowds", "9", token, processes=8)
    assert plan.phase_state == ERRORED
    assert "the agent was stopped: it exceeded its limit of 8 processes" in str(plan.error)
    assert alive(int(token)) == []
    assert bench.files(plan)["crowd.txt"] == "crowd\n"


@either
def test_a_cancel_ends_every_process_and_records_what_was_done(
    tmp_path: Path, isolation: str, token: str
) -> None:
    with agent_bench(tmp_path, isolation=isolation) as bench:
        plan = bench.task(external("stays", token))
        with bench.worker(plan) as worker:
            assert bench.heard.wait(60)
            assert alive(int(token)) != []
            bench.cancel(plan)
            worker.run_until_idle(60)
        assert alive(int(token)) == []
        assert bench.now(plan).state is PlanState.CANCELLED
        assert only_call(bench, plan) == ("agent", CallState.FAILED, "cancelled: not wanted")
        assert bench.files(plan)["staying.txt"] == "staying\n"
        bench.ensure_consistent(plan)


def test_ten_at_once_do_their_work_and_leave_nothing_behind(bench: AgentBench) -> None:
    plans = [bench.task(external("edits")) for _ in range(10)]
    with bench.worker(*plans) as worker:
        worker.run_until_idle(300)
    for plan in plans:
        assert bench.now(plan).phase_state == COMPLETE, bench.now(plan).error
        assert bench.files(plan) == {**EDITED, "told.txt": "Do it: a goal"}
        bench.ensure_consistent(plan)


def test_the_agent_tool_is_in_no_list_of_tools(bench: AgentBench) -> None:
    from cleveragents.actors.external.agent_tool import AgentTools

    tools = AgentTools()
    assert (tools.names(), tools.specs(), tools.problems()) == ((), (), ())
    assert tools.get("agent").spec.runs_commands
    arguments = {"argv": ["sh"], "prompt": "", "network": True}
    files = ConfinedFiles(bench.repository)
    assert tools.capability_of(tools.get("agent"), arguments, files).value == "network"
    assert END not in bench.parts.tools.names()
    assert "agent" not in bench.parts.tools.names()
