"""A worker is killed while its plan starts to wait for a usage limit, waits, or continues.

The next worker continues the plan at the reset: no finished call is repeated, and no reservation stays open.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.api.plans.status_text import status_text_of
from cleveragents.models.model.budget import Spend
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.usage_wait import parked_until
from tests.actor_plan_bench import actor_plan_bench
from tests.crash.programs.limited_worker import RULES, carried_on
from tests.crash.runner import Runner, running

NAMES = ("plan.park.", "plan.wake.", "job.finish.")


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with running("limited_worker") as made:
        yield made


def new_home(path: Path) -> Path:
    """Create a repository and a plan whose model reaches a usage limit."""
    with actor_plan_bench(path) as bench:
        bench.goal(bench.script(*RULES))
    return path


def ensure_complete(home: Path) -> None:
    plan = carried_on(home)
    assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), plan
    with actor_plan_bench(home) as bench:
        assert [call.tool for call in bench.calls(plan)] == ["write"]
        assert bench.spent(plan).reserved == Spend()
        bench.ensure_consistent(plan)


def ensure_not_healthy(home: Path) -> None:
    """Check that a plan whose process died while it waited does not look as if a process waits."""
    with actor_plan_bench(home) as bench:
        (plan,) = bench.parts.plans.list()
        if parked_until(plan) is not None:
            told = status_text_of(bench.parts, bench.parts.lifecycle.reconciled(plan))
            assert "but no process continues it; resume it" in told


@pytest.mark.timeout(900)
def test_a_killed_worker_loses_no_waiting_plan(runner: Runner, tmp_path: Path) -> None:
    home = new_home(tmp_path / "whole")
    assert runner.run(home) == 0
    ensure_complete(home)
    reached = [name for name in json.loads((home / "points.json").read_text()) if name.startswith(NAMES)]
    points = [(name, reached[: place + 1].count(name)) for place, name in enumerate(reached)]
    assert {"plan.park.before", "plan.park.after", "plan.wake.before", "plan.wake.after"} <= set(reached)
    for name, nth in points:
        home = new_home(tmp_path / f"{name}-{nth}")
        try:
            assert runner.run(home, point=name, nth=nth) == -signal.SIGKILL
            ensure_not_healthy(home)
            ensure_complete(home)
        except BaseException as error:
            error.add_note(f"killed at {name}, the {nth}th time")
            raise
        shutil.rmtree(home)
