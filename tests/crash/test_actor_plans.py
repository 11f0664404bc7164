"""A plan of actors whose process is killed at its durable steps, or stopped for longer than its lease.

Whoever comes next goes on at the last finished call: no finished call of a tool or of a model is made again,
the result is the same, and the budget counts every call once, at most at its worst case.
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
from sqlalchemy import select

from cleveragents.domain.plan import Phase, Plan, PlanState
from cleveragents.infrastructure.persistence.actor_tables import model_calls
from tests.actor_plan_bench import ActorPlanBench, actor_plan_bench
from tests.applying import snapshot
from tests.crash.programs.goal_runner import RULES, THOUGHTS, carried_through
from tests.crash.test_plans import distinct
from tests.plan_bench import FILES

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "tests.crash.programs.goal_runner"]
RESULT = {
    **{path: text for path, text in FILES.items() if path != "folder/c.txt"},
    "b.txt": "alpha\nmore\n",
    "made.txt": "made\n",
    "moved.txt": "gamma\n",
}
RECORDED = [("create", "made.txt"), ("modify", "b.txt"), ("rename", "moved.txt")]
TOOLS = ["read", "write", "read", "command"]
POINTS = 9


class Runner:
    """Runs plans in processes that are killed where it says."""

    def __init__(self, home: Path) -> None:
        self._template = home / "template"
        with actor_plan_bench(self._template) as bench:
            bench.script(*RULES, input_price=1.0, output_price=1.0)
            assert bench.parts.plans.list() == []
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self._process = subprocess.Popen(
            PROGRAM, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def home(self, path: Path) -> Path:
        """A repository, an empty database and the model's script."""
        shutil.copytree(self._template, path, symlinks=True)
        return path

    def run(self, home: Path, **order: object) -> int:
        """The exit code of the process that carried a plan through, or did not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"home": str(home), **order}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("runner"))
    yield made
    made.close()


@pytest.mark.timeout(300)
def test_a_plan_of_actors_that_is_killed_anywhere_repeats_no_finished_call(
    runner: Runner, tmp_path: Path
) -> None:
    """sipyourdrink-ltd/bernstein#3376: a kill threw away the state that a resume needs."""
    whole = runner.home(tmp_path / "whole")
    assert runner.run(whole) == 0
    tokens = ensure_whole(whole, before=None)
    points = chosen(distinct(json.loads((whole / "points.json").read_text())))
    for name, nth in points:
        home = runner.home(tmp_path / "killed")
        assert runner.run(home, point=name, nth=nth) == -signal.SIGKILL, (name, nth)
        before = Known(home)
        try:
            plan = carried_through(home)
            assert plan.standing == (Phase.APPLY, PlanState.APPLIED), plan
            assert ensure_whole(home, before=before) >= tokens
        except BaseException as error:
            error.add_note(f"killed at {name}, the {nth}th time")
            raise
        shutil.rmtree(home)


def chosen(points: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """As many as there is time for, evenly; every one when asked to."""
    actors = [point for point in points if not point[0].startswith(("apply", "sandbox"))]
    if os.environ.get("CLEVERAGENTS_EVERY_FAULT_POINT"):
        return actors
    return actors[:: max(1, len(actors) // POINTS)]


class Known:
    """What the database knew of a plan's calls when its process died."""

    def __init__(self, home: Path) -> None:
        with actor_plan_bench(home) as bench:
            self.thoughts = thoughts_of(bench)
            plans = bench.parts.plans.list()
            self.tools = [c.tool for plan in plans for c in bench.calls(plan) if c.state.value == "ended"]
        runs = [*home.glob("state/sandboxes/*/tree/runs.log")]
        self.runs = runs[0].read_text() if runs else ""


def thoughts_of(bench: ActorPlanBench) -> list[tuple[str, str]]:
    """Every call of a model: its name for good, and how it ended."""
    query = select(model_calls.c.key, model_calls.c.state).order_by(model_calls.c.number)
    with bench.container.database.read() as connection:
        return [(key, state) for key, state in connection.execute(query)]


def ensure_whole(home: Path, before: Known | None) -> int:
    """The result is there, once; no call was repeated but one that was under way. Returns what was spent."""
    with actor_plan_bench(home) as bench:
        [plan] = bench.parts.plans.list()
        found = {p: text for p, (kind, text) in snapshot(bench.repository).items() if kind.startswith("file")}
        assert found == {path: text.encode() for path, text in RESULT.items()}
        changes = [change.entry for change in bench.parts.history.changes(plan.id)]
        assert [(entry.kind.value, entry.path) for entry in changes] == RECORDED
        bench.ensure_consistent(plan)
        assert bench.tools_of(plan) == TOOLS
        assert bench.states_of(plan) == ["ended"] * len(TOOLS)
        ensure_thought_once(bench, before)
        runs = (bench.sandbox(plan).root / "runs.log").read_text()
        done = before is not None and "command" in before.tools
        assert runs in ({"ran\n"} if done or before is None else {"ran\n", "ran\nran\n"})
        return ensure_accounted(bench, plan)


def ensure_thought_once(bench: ActorPlanBench, before: Known | None) -> None:
    thoughts = thoughts_of(bench)
    times = Counter(key for key, _ in thoughts)
    assert len(times) == THOUGHTS
    again = [key for key, n in times.items() if n > 1]
    if before is None or not before.thoughts:
        assert again == []
        return
    # The last one's answer may not have been kept when the process died; all others' were.
    assert again in ([], [before.thoughts[-1][0]])
    assert all(n <= 2 for n in times.values())
    states = [state for _, state in thoughts]
    assert states.count("settled") >= THOUGHTS
    # What was under way counts at its worst, and nothing else does.
    was_open = [key for key, state in before.thoughts if state == "reserved"]
    assert [key for key, state in thoughts if state == "forfeited"] == was_open


def ensure_accounted(bench: ActorPlanBench, plan: Plan) -> int:
    """What is spent is the sum of the calls, each once; nothing is reserved any more."""
    view = bench.spent(plan)
    assert (view.reserved.tokens, view.reserved.picodollars, view.reserved.steps) == (0, 0, 0)
    query = select(model_calls).where(model_calls.c.plan_id == plan.id)
    with bench.container.database.read() as connection:
        rows = connection.execute(query).mappings().all()
    assert view.spent.steps == len(rows)
    taken = [
        row["worst_tokens"] if row["state"] == "forfeited" else row["input_tokens"] + row["output_tokens"]
        for row in rows
    ]
    assert view.spent.tokens == sum(taken)
    assert all(amount <= row["worst_tokens"] for amount, row in zip(taken, rows, strict=True))
    return view.spent.tokens
