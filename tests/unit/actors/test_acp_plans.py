"""Whole plans with an ACP agent: they wait for a person, are cancelled, and continue after their process was
killed, as any other plan does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cleveragents.actors.model.actor import AcpNode, Actor, StateKey, ToolNode
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from tests.acp_bench import PROGRAMS
from tests.agent_bench import AgentBench, agent_bench
from tests.processes import PidPipe, lives, wait_gone

ROOT = Path(__file__).parents[3]
COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)


def talker(*steps: tuple[Any, ...], program: str = "plain.py", **facts: Any) -> Actor:
    """An actor that runs a session and writes its answer to a file."""
    node = AcpNode(
        name="work",
        argv=(sys.executable, str(PROGRAMS / program)),
        prompt=json.dumps(steps),
        output="said",
        next=("keep",),
        **facts,
    )
    keep = ToolNode(name="keep", tool="write", arguments={"path": "said.txt", "content": "${said}"})
    return Actor(name="tests/talker", entry="work", nodes=(node, keep), state=(StateKey("said"),))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[AgentBench]:
    with agent_bench(tmp_path / "home") as made:
        yield made


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[PidPipe]:
    pipe = PidPipe(tmp_path)
    yield pipe
    pipe.close()


def states(bench: AgentBench, plan: Plan) -> list[str]:
    return [f"{call.tool} {call.state.value}" for call in bench.calls(plan)]


def test_an_agents_answer_reaches_the_next_node_and_its_calls_belong_to_the_task(bench: AgentBench) -> None:
    plan = bench.work(bench.task(talker(("write", "new.txt", "new\n"), ("say", "well done"))))
    assert plan.phase_state == COMPLETE, plan.error
    assert bench.files(plan)["said.txt"].strip() == "well done"
    assert states(bench, plan) == ["acp ended", "write ended", "write ended"]
    assert len({call.strategy_step for call in bench.calls(plan)}) == 1
    bench.ensure_consistent(plan)


def test_a_plan_waits_for_a_person_and_continues_with_the_answer(bench: AgentBench) -> None:
    actor = talker(("secretly", "own.txt", "x"), ("ask", "fetch", "look"), ("tell_prompt",))
    plan = bench.work(bench.task(actor, profile="auto"))
    assert plan.phase_state == (Phase.EXECUTE, PlanState.WAITING)
    assert "needs approval for network" in str(plan.waiting_for)
    bench.ensure_consistent(plan)
    plan = bench.answer(plan, granted=True)
    assert plan.phase_state == COMPLETE, plan.error
    said = bench.files(plan)["said.txt"]
    assert "look:allow_once" in said
    assert "An earlier session" in said
    bench.ensure_consistent(plan)


def test_a_failed_agent_stops_its_actor_and_restarts_on_resume(bench: AgentBench) -> None:
    actor = talker(("write", "new.txt", "new\n"), ("stop", "refusal"))
    plan = bench.work(bench.task(actor))
    assert plan.phase_state == (Phase.EXECUTE, PlanState.ERRORED)
    assert "refused to continue" in str(plan.error)
    bench.actors[actor.name] = talker(("tell_prompt",))
    plan = bench.resume(plan)
    assert plan.phase_state == COMPLETE, plan.error
    assert "An earlier session" in bench.files(plan)["said.txt"]
    assert bench.files(plan)["new.txt"] == "new\n"


def test_cancelled_it_is_gone_and_what_it_did_is_recorded(bench: AgentBench, pids: PidPipe) -> None:
    actor = talker(("secretly", "own.txt", "x"), ("announce", str(pids.path)), ("until_cancelled",))
    plan = bench.task(actor)
    with bench.worker(plan) as worker:
        found = pids.read(1, timeout=60)
        bench.cancel(plan)
        worker.run_until_idle(60)
    assert bench.now(plan).state is PlanState.CANCELLED
    assert not any(map(lives, found))
    assert {"own.txt", "late.txt"} <= set(bench.files(plan))
    bench.ensure_consistent(plan)
    assert all(call.state.value in ("ended", "failed") for call in bench.calls(plan))


def test_after_kill_9_no_process_is_left_and_a_new_session_continues(
    bench: AgentBench, pids: PidPipe, tmp_path: Path
) -> None:
    actor = talker(
        ("write", "new.txt", "new\n"),
        ("secretly", "own.txt", "x"),
        ("announce", str(pids.path)),
        ("until_cancelled",),
    )
    plan = bench.task(actor)
    order = {"home": str(tmp_path / "home"), "plan": plan.id, "prompt": actor.nodes[0].prompt}
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    program = [sys.executable, "-m", "tests.crash.programs.agent_talker", json.dumps(order)]
    with subprocess.Popen(program, cwd=ROOT, env=environment) as worker:
        (agent,) = pids.read(1, timeout=60)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    assert wait_gone([agent]) == []
    bench.actors[actor.name] = talker(("tell_prompt",), ("read", "new.txt"), ("read", "own.txt"))
    plan = bench.resume(bench.parts.lifecycle.reconciled(bench.now(plan)))
    assert plan.phase_state == COMPLETE, plan.error
    said = bench.files(plan)["said.txt"]
    assert "An earlier session" in said
    assert "read:new" in said
    assert "refused:" in said  # unrecorded changes were reverted
    assert "acp started" not in states(bench, plan)
    bench.ensure_consistent(plan)
