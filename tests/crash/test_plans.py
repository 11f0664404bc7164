"""A plan whose process is killed at every durable step, from its creation to the user's files.

The next process settles, resumes and applies the plan: nothing is lost, done, recorded or applied twice, and
no orphans remain.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from cleveragents.jobs.model.job import marker_of
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from tests.apply_bench import git, snapshot
from tests.crash.programs.plan_runner import STEPS, carried_through
from tests.crash.runner import Runner, running
from tests.plan_bench import FILES, PlanBench, plan_bench

RESULT = {
    **{path: text for path, text in FILES.items() if path != "folder/c.txt"},
    "b.txt": "alpha\nmore\n",
    "made.txt": "made\n",
    "moved.txt": "gamma\n",
}
CHANGED = ["b.txt", "folder/c.txt", "made.txt", "moved.txt"]
RECORDED = [("create", "made.txt"), ("modify", "b.txt"), ("rename", "moved.txt")]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    template = tmp_path_factory.mktemp("runner") / "template"
    with plan_bench(template) as bench:
        assert bench.parts.plans.list() == []
    with running("plan_runner", template) as made:
        yield made


def distinct(reached: list[str]) -> list[tuple[str, int]]:
    """Return every point with its count, except those that nothing durable separates from the previous one.

    Such a point is a commit announced right after the one before it, or a step announced right after its
    commit.
    """
    seen: Counter[str] = Counter()
    kept: list[tuple[str, int]] = []
    before = ""
    for name in reached:
        seen[name] += 1
        after_commit = before == "store.write.after_commit"
        same = name == "store.write.before_commit" or (after_commit and name.endswith(".after"))
        if not same or os.environ.get("CLEVERAGENTS_EVERY_FAULT_POINT"):
            kept.append((name, seen[name]))
        before = name
    return kept


@pytest.mark.timeout(1800)
def test_a_killed_plan_loses_and_repeats_nothing(runner: Runner, tmp_path: Path) -> None:
    """sipyourdrink-ltd/bernstein#3376: a kill destroyed the state that a resume needs."""
    whole = runner.home(tmp_path / "whole")
    assert runner.run(whole) == 0
    ensure_complete(whole)
    points = distinct(json.loads((whole / "points.json").read_text()))
    assert {name.partition(".")[0] for name, _ in points} == {"store", "job", "sandbox", "tool", "apply"}
    for name, nth in points:
        home = runner.home(tmp_path / "killed")
        assert runner.run(home, point=name, nth=nth) == -signal.SIGKILL, (name, nth)
        done = finished_calls(home)
        try:
            plan = carried_through(home)
            assert plan.phase_state == (Phase.APPLY, PlanState.APPLIED), plan
            ensure_complete(home)
            runs = (next((home / "state/sandboxes").iterdir()) / "tree" / "runs.log").read_text()
            assert runs in ({"ran\n"} if "2" in done else {"ran\n", "ran\nran\n"})
        except BaseException as error:
            error.add_note(f"killed at {name}, the {nth}th time")
            raise
        shutil.rmtree(home)


def test_a_killed_rollback_is_complete_or_has_no_effect(runner: Runner, tmp_path: Path) -> None:
    for nth in count(1):
        home = runner.home(tmp_path / f"{nth}")
        with plan_bench(home) as bench:
            bench.done(*STEPS)
        status = runner.run(home, rollback=2, point="store.write.after_commit", nth=nth)
        with plan_bench(home) as bench:
            [plan] = bench.parts.plans.list()
            assert bench.resume(plan).state is PlanState.COMPLETE
            bench.ensure_consistent(plan)
            # Once the rollback is recorded, it is finished, and the call is repeated.
            assert bench.states_of(plan) == ["ended", "reverted", "ended", "ended"]
            assert sorted(bench.parts.history.differences(plan.id)) == CHANGED
            assert (bench.sandbox(plan).root / "runs.log").read_text() == "ran\nran\n"
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert nth > 4


def finished_calls(home: Path) -> set[str]:
    """Return the steps whose result was stored when the process died."""
    with plan_bench(home) as bench:
        return {
            str(call.step)
            for plan in bench.parts.plans.list()
            for call in bench.calls(plan)
            if call.state.value in ("ending", "ended")
        }


def ensure_complete(home: Path) -> None:
    """Assert that the result exists once, and nothing else."""
    with plan_bench(home) as bench:
        [plan] = bench.parts.plans.list()
        root = bench.repository
        found = {path: text for path, (kind, text) in snapshot(root).items() if kind.startswith("file")}
        assert found == {path: text.encode() for path, text in RESULT.items()}
        changes = [change.entry for change in bench.parts.history.changes(plan.id)]
        assert [(entry.kind.value, entry.path) for entry in changes] == RECORDED
        bench.ensure_consistent(plan)
        ensure_tidy(bench, plan)


def ensure_tidy(bench: PlanBench, plan: Plan) -> None:
    root = bench.repository
    known = {row.plan_id for row in bench.parts.sandboxes.rows()}
    assert {path.name for path in bench.parts.sandboxes.directory.iterdir()} == known == {plan.id}
    assert git(root, "for-each-ref", "--format=%(refname)") == (
        f"refs/cleveragents/base/{plan.id}\nrefs/heads/main"
    )
    assert git(root, "stash", "list") == ""
    assert list(root.rglob("*.lock")) == []
    assert not (root / ".git" / "cleveragents").exists()
    assert [path.name for path in root.parent.iterdir()].count(root.name) == 1
    for job in bench.container.jobs.list():
        assert job.state.ended, job
        for fence in range(1, job.fence + 1):
            assert bench.container.processes.alive(marker_of(job.id, fence)) == []
    assert [call.state.value for call in bench.calls(plan)] == ["ended", "ended"]
    git(root, "fsck", "--strict")
