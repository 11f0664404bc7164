"""A cancel works from any process, whichever worker runs the plan and whatever its commands started."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.core.errors import SandboxMissing
from cleveragents.jobs.model.job import JobState
from cleveragents.plans.model.plan import Plan, PlanState
from tests.command_trees import alive, tree_script, wait_none_alive
from tests.fork_server import Forked
from tests.plan_bench import PlanBench, command, plan_bench

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.crash.programs.plan_worker"]
WAYS = (
    "a child that ignores SIGTERM",
    "a double fork",
    "a session of its own",
    "a daemon without variables and descriptors",
)
PATIENCE_SECONDS = 60.0


class Workers:
    """A plan's database here, and workers for it in other processes."""

    def __init__(self, bench: PlanBench, home: Path, isolation: str) -> None:
        self.bench = bench
        self._isolation = isolation
        self.token = secrets.randbelow(10**9) + 10**9
        self._home = home
        self._children: list[subprocess.Popen[str]] = []

    def script(self, then: str = "sleep 1000") -> str:
        return tree_script(self.token, ways=WAYS, then=then)

    def start(self, plan: Plan, script: str) -> subprocess.Popen[str]:
        told = {"home": str(self._home), "plan": plan.id, "script": script, "isolation": self._isolation}
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        child = Forked(
            PROGRAM, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdin is not None
        child.stdin.write(json.dumps(told))
        child.stdin.close()
        self._children.append(child)
        return child

    def at_work(self, plan: Plan, script: str) -> subprocess.Popen[str]:
        """Return a worker whose command has started all its processes."""
        child = self.start(plan, script)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        assert len(alive(self.token)) >= len(WAYS)
        return child

    def until_over(self, plan: Plan, *, within: float) -> Plan:
        deadline = time.monotonic() + within
        while self.bench.now(plan).state.running and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.bench.now(plan)

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


@pytest.fixture(params=["auto", "off"])
def workers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workers]:
    """With bubblewrap, if it works, and without."""
    with plan_bench(tmp_path, isolation=request.param) as bench:
        made = Workers(bench, tmp_path, request.param)
        try:
            yield made
        finally:
            made.close()
            assert wait_none_alive(made.token, timeout=PATIENCE_SECONDS) == []


def test_a_cancel_from_another_process_ends_the_plan_and_all_its_processes(workers: Workers) -> None:
    """vicoa-ai/vicoa#41: sub-agents ran on for minutes, and a second stop did nothing.
    strands-agents/harness-sdk#4419: a cancelled child was reported as completed."""
    bench = workers.bench
    script = workers.script()
    plan = bench.plan(command(script))
    child = workers.at_work(plan, script)
    assert bench.cancel(plan, "wrong branch").state is PlanState.PROCESSING
    over = workers.until_over(plan, within=PATIENCE_SECONDS)
    assert over.state is PlanState.CANCELLED
    assert over.error == "cancelled: wrong branch"
    # The plan says cancelled no earlier than it is true, and no later.
    assert alive(workers.token) == []
    assert bench.cancel(plan, "again") == over
    assert bench.now(plan) == over
    assert bench.sandbox(plan).root.is_dir()
    assert bench.states_of(plan) == ["failed"]
    assert child.wait(PATIENCE_SECONDS) == 0
    assert bench.container.jobs.get(str(over.job_id)).state is JobState.CANCELLED


def test_a_queued_plan_is_cancelled_and_never_starts(workers: Workers) -> None:
    bench = workers.bench
    plan = bench.plan(command(workers.script()))
    cancelled = bench.cancel(plan)
    assert cancelled.state is PlanState.CANCELLED
    assert workers.start(plan, workers.script()).wait(PATIENCE_SECONDS) == 0
    assert bench.now(plan) == cancelled
    with pytest.raises(SandboxMissing):
        bench.sandbox(plan)


def test_a_plan_of_a_killed_worker_can_be_cancelled(workers: Workers) -> None:
    """langwatch/langwatch#3195 and bytedance/deer-flow#1087: it would count as running forever."""
    bench = workers.bench
    script = f"echo x > half.txt\n{workers.script()}"
    plan = bench.plan(command(script))
    child = workers.at_work(plan, script)
    child.kill()
    child.wait()
    over = bench.cancel(plan, "its worker is gone")
    assert over.state is PlanState.CANCELLED
    assert wait_none_alive(workers.token, timeout=PATIENCE_SECONDS) == []
    assert bench.container.jobs.get(str(over.job_id)).state is JobState.CANCELLED
    [call] = bench.calls(plan)
    assert (call.state.value, call.error) == ("failed", "cancelled: its worker is gone")
    assert list(bench.parts.history.differences(plan.id)) == ["half.txt"]
    bench.ensure_consistent(plan)
    assert bench.cancel(plan, "again") == over


def test_a_plan_of_a_killed_worker_can_be_resumed_at_once(workers: Workers) -> None:
    bench = workers.bench
    script = f"test -e begun.log && exec echo done\ntouch begun.log; echo x > half.txt\n{workers.script()}"
    plan = bench.plan(command(script))
    child = workers.at_work(plan, script)
    child.kill()
    child.wait()
    over = bench.resume(plan)
    assert over.state is PlanState.COMPLETE
    assert wait_none_alive(workers.token, timeout=PATIENCE_SECONDS) == []
    # The unfinished changes of the killed attempt were reverted before the call was made again.
    assert bench.parts.history.differences(plan.id) == {}
    bench.ensure_consistent(plan)


def test_a_worker_that_shuts_down_cancels_nothing(workers: Workers) -> None:
    """anthropics/claude-code#76807: background agents were ended silently."""
    bench = workers.bench
    script = f"test -e begun.log && exec echo done\ntouch begun.log; echo x > half.txt\n{workers.script()}"
    plan = bench.plan(command(script))
    child = workers.at_work(plan, script)
    child.send_signal(signal.SIGTERM)
    assert child.wait(PATIENCE_SECONDS) == 0
    assert alive(workers.token) == []
    assert bench.now(plan).state is PlanState.PROCESSING
    assert bench.parts.lifecycle.reconciled(bench.now(plan)).state is PlanState.PROCESSING
    assert bench.resume(plan).state is PlanState.COMPLETE
    bench.ensure_consistent(plan)
    assert bench.states_of(plan) == ["ended"]
