"""Killed workers of external agents: no process of the agent survives, an interrupted session is repeated on
the original files, and a finished one is not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cleveragents.core.tool import CallState
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.processes.bubblewrap import shared_probe
from tests.agent_bench import AgentBench, agent_bench, external
from tests.command_trees import alive, end_by_hand, wait_none_alive
from tests.fork_server import Forked
from tests.plan_bench import FILES

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.crash.programs.agent_worker"]
COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
EDITED = {
    **{path: text for path, text in FILES.items() if path != "b.txt"},
    "a.txt": "edited\n",
    "told.txt": "Do it: a goal",
}
needs_bubblewrap = pytest.mark.skipif(
    shared_probe.result().program is None, reason=f"needs bubblewrap: {shared_probe.result().problem}"
)
either = pytest.mark.parametrize("isolation", ["off", pytest.param("required", marks=needs_bubblewrap)])


@contextmanager
def worker(
    home: Path, plan: Plan, mode: str, *arguments: str, **more: str
) -> Iterator[subprocess.Popen[str]]:
    told = {"home": str(home), "plan": plan.id, "mode": mode, "arguments": arguments, "isolation": "off"}
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    child = Forked(
        PROGRAM, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps({**told, **more}))
    child.stdin.close()
    try:
        yield child
    finally:
        child.kill()
        child.wait(240)
        child.stdout.close()


def gone_on(bench: AgentBench, plan: Plan) -> Plan:
    """Return the plan after another worker resumed it with an agent that succeeds."""
    plan = bench.parts.lifecycle.resume(bench.now(plan))
    bench.actors["tests/external"] = external("edits")
    return bench.work(plan)


@either
def test_a_killed_worker_ends_its_agent_and_the_run_is_repeated(tmp_path: Path, isolation: str) -> None:
    token = time.monotonic_ns()
    with agent_bench(tmp_path) as bench:
        plan = bench.task(external("stays", str(token)))
        try:
            with worker(tmp_path, plan, "stays", str(token), isolation=isolation) as child:
                assert child.stdout is not None
                assert child.stdout.readline() == "ready\n"
                assert alive(token) != []
                child.kill()
                child.wait(240)
                assert wait_none_alive(token, timeout=240) == []
            assert bench.files(plan)["staying.txt"] == "staying\n"
            plan = gone_on(bench, plan)
            assert plan.phase_state == COMPLETE, plan.error
            assert bench.files(plan) == EDITED, "what was half done is taken back"
            bench.ensure_consistent(plan)
        finally:
            end_by_hand(token)


@pytest.mark.parametrize("point", ["tool.ending.after", "tool.ended.after"])
def test_a_finished_agent_is_not_run_again(tmp_path: Path, point: str) -> None:
    with agent_bench(tmp_path) as bench:
        plan = bench.task(external("edits"))
        with worker(tmp_path, plan, "edits", die_at=point) as child:
            assert child.wait(240) == -9
        plan = bench.parts.lifecycle.resume(bench.now(plan))
        bench.actors["tests/external"] = external("fails")  # a repeated run would fail
        plan = bench.work(plan)
        assert plan.phase_state == COMPLETE, plan.error
        assert bench.files(plan) == EDITED
        assert [call.state for call in bench.calls(plan)] == [CallState.ENDED]
        bench.ensure_consistent(plan)
