"""Killed workers of a shared queue: their jobs move to another worker and end the same way."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleveragents.core.clock import SystemClock
from cleveragents.core.faults import NoFaults
from cleveragents.jobs.model.job import JobState, Lane, NewJob
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from tests.crash.programs.run_worker import make_worker
from tests.crash.programs.shared_worker import shared_plan, worked_off
from tests.crash.runner import Runner, running
from tests.crash.test_plans import distinct
from tests.crash.test_worker_crashes import PATIENT, World
from tests.plan_bench import plan_bench


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with running("shared_worker") as made:
        yield made


def killed_everywhere(
    runner: Runner, prepare: Callable[[Path], None], tmp_path: Path, began: str
) -> Iterator[Path]:
    """Yield homes of a worker that was killed at each third step from `began` on (at each step if the
    environment says so), after another worker has continued. Other tests cover the state of an apply at each
    step.
    """
    whole = tmp_path / "whole"
    prepare(whole)
    assert runner.run(whole) == 0
    yield whole
    points = distinct(json.loads((whole / "points.json").read_text()))
    first = next(place for place, (name, _) in enumerate(points) if name.startswith(began))
    every = 1 if os.environ.get("CLEVERAGENTS_EVERY_FAULT_POINT") else 3
    for name, nth in points[first::every]:
        home = tmp_path / "killed"
        prepare(home)
        assert runner.run(home, point=name, nth=nth) == -signal.SIGKILL, (name, nth)
        try:
            worked_off(home)
            yield home
        except BaseException as error:
            error.add_note(f"killed at {name}, the {nth}th time")
            raise
        shutil.rmtree(home)


def plan_in(home: Path) -> tuple[Plan, str, list[JobState]]:
    """Return the plan, the user's file that it changed, and the outcomes of its jobs."""
    with plan_bench(home) as bench:
        [plan] = bench.parts.plans.list()
        assert not (bench.repository / ".git" / "cleveragents").exists()
        assert (bench.repository / "made.txt").exists() == (bench.text("b.txt") == "changed\n")
        return plan, bench.text("b.txt"), [job.state for job in bench.container.jobs.list()]


@pytest.mark.timeout(1800)
def test_a_result_is_applied_once_wherever_its_worker_is_killed(runner: Runner, tmp_path: Path) -> None:
    def prepare(home: Path) -> None:
        with plan_bench(home, isolation="off") as bench:
            shared_plan(bench, apply="auto")

    for home in killed_everywhere(runner, prepare, tmp_path, "apply."):
        plan, text, states = plan_in(home)
        assert plan.phase_state == (Phase.APPLY, PlanState.APPLIED)
        assert (text, states) == ("changed\n", [JobState.SUCCEEDED])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("what", ["apply", "undo"])
def test_a_requested_apply_or_undo_happens_once_wherever_its_worker_is_killed(
    runner: Runner, tmp_path: Path, what: str
) -> None:
    def prepare(home: Path) -> None:
        with plan_bench(home, isolation="off") as bench:
            plan = shared_plan(bench, apply="auto" if what == "undo" else "review")
        worked_off(home)
        with plan_bench(home) as bench:
            payload = {"plan_id": plan.id, "commit": None, "by": "ada"}
            new = NewJob(f"{what}:{plan.id}", payload, queue="plans")
            bench.container.jobs.submit(new, now=SystemClock().now())

    expected = (PlanState.APPLIED, "changed\n") if what == "apply" else (PlanState.UNDONE, "alpha\n")
    for home in killed_everywhere(runner, prepare, tmp_path, "job.run"):
        plan, text, states = plan_in(home)
        assert (plan.state, text) == expected
        assert states == [JobState.SUCCEEDED] * 2


def test_a_killed_workers_concurrency_slot_is_released(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        lanes = (Lane("project:a", 1),)
        new = NewJob("append", {"file": str(world.effects)}, max_attempts=5, queue="plans", lanes=lanes)
        ids = [world.store.submit(new, now=SystemClock().now()).id for _ in range(3)]
        child = world.spawn(crash_at="job.run.before", queues=("plans",), **PATIENT)
        assert child.wait(240) == -signal.SIGKILL
        assert world.job(ids[0]).state is JobState.RUNNING
        # Another worker that takes over nothing finds the concurrency limit reached.
        peer = make_worker(world.database, NoFaults(), name="peer", queues=("plans",), **PATIENT)
        peer._claim_ready()
        assert peer.statistics().claimed == 0
        peer.close()
        world.recover(queues=("plans",), **PATIENT)
        assert [world.job(job_id).state for job_id in ids] == [JobState.SUCCEEDED] * 3
        assert world.most_at_once() == 1
    finally:
        world.close()
