"""A tree of plans whose process is killed while it spawns, merges or wakes.

The next process resumes the root: every sub-plan exists once and is merged once, and no plan waits in vain.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.plans.model.plan import Phase, PlanState
from tests.crash.programs.tree_runner import PARTS, carried_through
from tests.crash.runner import Runner, running
from tests.plan_bench import FILES
from tests.tree_bench import name_of, tree_bench

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
COMMITTED = "store.write.after_commit"
EVERY = 41
"""Only every n-th commit of a tree is tried; all of them if every fault point is requested."""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    template = tmp_path_factory.mktemp("runner") / "template"
    with tree_bench(template) as bench:
        assert bench.parts.plans.list() == []
    with running("tree_runner", template) as made:
        yield made


def wanted(reached: list[str]) -> list[tuple[str, int]]:
    """Return every step of spawning and merging of the first sub-plans, and some of all commits, including
    those before a job reports its end and those of waking.
    """
    seen: Counter[str] = Counter()
    points: list[tuple[str, int]] = []
    for name in reached:
        seen[name] += 1
        of_tree = name.startswith(("sub_plan.", "merge.")) and seen[name] == 1
        some = name == COMMITTED and (
            seen[name] % EVERY == 0 or "CLEVERAGENTS_EVERY_FAULT_POINT" in os.environ
        )
        if of_tree or some:
            points.append((name, seen[name]))
    return points


@pytest.mark.timeout(1800)
def test_a_killed_plan_tree_loses_nothing_and_merges_nothing_twice(runner: Runner, tmp_path: Path) -> None:
    whole = runner.home(tmp_path / "whole")
    assert runner.run(whole) == 0
    ensure_complete(whole)
    points = wanted(json.loads((whole / "points.json").read_text()))
    assert {name.partition(".")[0] for name, _ in points} == {"store", "sub_plan", "merge"}
    for name, nth in points:
        home = runner.home(tmp_path / "killed")
        assert runner.run(home, point=name, nth=nth) == -signal.SIGKILL, (name, nth)
        try:
            plan = carried_through(home)
            assert plan.phase_state == COMPLETE, (plan.phase_state, plan.error, plan.waiting_for)
            ensure_complete(home)
        except BaseException as error:
            error.add_note(f"killed at {name}, the {nth}th time")
            raise
        shutil.rmtree(home)


def ensure_complete(home: Path) -> None:
    """Assert that every sub-plan exists and is merged once, and the result contains all their changes."""
    with tree_bench(home) as bench:
        [root] = [plan for plan in bench.parts.plans.list() if plan.parent_id is None]
        children = bench.parts.plans.children(root.id)
        assert [name_of(child) for child in children] == [one.name for one in PARTS]
        assert {child.phase_state for child in children} == {COMPLETE}
        merged = [str(call.step) for call in bench.calls(root) if call.tool == "merge"]
        ended = [call.step for call in bench.calls(root) if call.tool == "merge" and call.state == "ended"]
        assert sorted(merged) == sorted(ended) == ["merge-1", "merge-2", "merge-3"]
        assert bench.file(root, "made.txt") == "made, and more\n"
        assert bench.file(root, "a.txt") == FILES["a.txt"].replace("one", "ONE")
        assert sorted(bench.parts.history.differences(root.id)) == ["a.txt", "made.txt"]
        bench.ensure_consistent(root)
        assert [job.id for job in bench.container.jobs.list() if not job.state.ended] == []
