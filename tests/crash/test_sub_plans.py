"""A tree of plans whose process is killed while it spawns, merges or wakes.

The next process resumes the root: every sub-plan exists once and is merged once, and no plan waits in vain.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.plans.model.plan import Phase, PlanState
from tests.crash.programs.tree_runner import PARTS, carried_through
from tests.fork_server import Forked
from tests.plan_bench import FILES
from tests.tree_bench import name_of, tree_bench

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.crash.programs.tree_runner"]
COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)
COMMITTED = "store.write.after_commit"
EVERY = 41
"""Only every n-th commit of a tree is tried; all of them if every fault point is requested."""


class Runner:
    """Runs trees in processes that are killed at given points."""

    def __init__(self, home: Path) -> None:
        self._template = home / "template"
        with tree_bench(self._template) as bench:
            assert bench.parts.plans.list() == []
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self._process = Forked(
            PROGRAM, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def home(self, path: Path) -> Path:
        """Create a repository and an empty database."""
        shutil.copytree(self._template, path, symlinks=True)
        return path

    def run(self, home: Path, **order: object) -> int:
        """Return the exit code of the process that ran the tree."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"home": str(home), **order}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=240)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("runner"))
    yield made
    made.close()


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
