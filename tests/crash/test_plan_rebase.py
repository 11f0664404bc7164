"""A rebase whose process is killed at every durable step: it is complete or was never made."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from cleveragents.changes.model.merge_conflict import REBASE
from cleveragents.core.tool import CallState
from cleveragents.plans.model.plan import Phase, PhaseState, PlanState
from tests.crash.programs.rebase_runner import CURRENT, PLANNED, carried_through, prepared
from tests.crash.runner import running
from tests.plan_bench import plan_bench

POINTS = (
    "rebase.started.after",
    "rebase.files.after",
    "rebase.ending.after",
    "tool.record.after",
    "rebase.ended.after",
)


def ensure_before_or_after(home: Path, standing: PhaseState) -> None:
    """Check that the result is the one before the rebase, or the merged one, and that the user's files are
    unchanged.
    """
    with plan_bench(home, isolation="off") as bench:
        [plan] = bench.parts.plans.list()
        with bench.parts.sandbox_edits.idle(plan) as sandbox:  # as the next action does
            done = [call.state for call in bench.calls(plan) if call.tool == REBASE]
            assert done in ([], [CallState.FAILED], [CallState.ENDED])
            tree = bench.parts.result.tree(plan, sandbox)
            text = sandbox.content(sandbox.files_below(tree)["a.txt"].content).decode()
            is_after = done == [CallState.ENDED]
            assert ("<<<<<<<" in text, text == PLANNED) == (is_after, not is_after)
            assert (sandbox.root / "a.txt").read_text() == text
            assert (sandbox.root / "new.txt").exists() == is_after
            assert (bench.parts.result.base(plan, sandbox) != sandbox.base) == is_after
            assert bench.parts.history.unrecorded(plan.id, sandbox) == {}
        assert (bench.text("a.txt"), bench.text("new.txt")) == (CURRENT, "new\n")
        assert plan.phase_state == standing


def ensure_complete(home: Path) -> None:
    with plan_bench(home, isolation="off") as bench:
        [plan] = bench.parts.plans.list()
        assert plan.phase_state == (Phase.EXECUTE, PlanState.COMPLETE), (plan.error, plan.waiting_for)
        bench.ensure_consistent(plan)
        assert bench.diff(plan, "--name-only", "--no-renames").split() == [
            "a.txt",
            "folder/c.txt",
            "moved.txt",
        ]
        assert bench.text("a.txt") == CURRENT
        bench.apply(plan)
        assert (bench.text("a.txt"), bench.text("new.txt")) == (PLANNED, "new\n")


@pytest.mark.parametrize(
    "standing", [(Phase.APPLY, PlanState.CONSTRAINED), (Phase.EXECUTE, PlanState.COMPLETE)]
)
def test_a_killed_rebase_is_before_or_after(tmp_path: Path, standing: PhaseState) -> None:
    """Then the plan can be rebased again."""
    home, template = tmp_path / "home", tmp_path / "template"
    home.mkdir()
    prepared(home, blocked=standing[0] is Phase.APPLY)
    # A sandbox knows its own path, so every run happens in the same place.
    shutil.copytree(home, template, symlinks=True)
    for point in POINTS:
        shutil.rmtree(home)
        shutil.copytree(template, home, symlinks=True)
        try:
            with running("rebase_runner") as runner:
                assert runner.run(home, point=point, nth=1) == -signal.SIGKILL
            ensure_before_or_after(home, standing)
            carried_through(home)
            ensure_complete(home)
        except BaseException as error:
            error.add_note(f"killed at {point}")
            raise
