"""Rebases whose conflicts an agent without tools resolves: it edits the files, and its edits are recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.actors.model.actor import Actor, CommandNode, StateKey
from cleveragents.core.errors import ApplyConflict, GitFailed, NeedsHuman
from cleveragents.plans.comments import CommentLines
from cleveragents.plans.model.comment import CommentState
from cleveragents.plans.model.plan import PlanState
from tests.agent_bench import AgentBench
from tests.apply_bench import git

KEEP_OURS = "sed -i -e '/^<<<<<<< /d' -e '/^=======$/,/^>>>>>>> /d' f.txt"


def editing(otherwise: str) -> Actor:
    """Return an agent that keeps its own side of a conflict in f.txt, and otherwise runs this."""
    script = f"if grep -q '^<<<<<<<' f.txt; then {KEEP_OURS}; else {otherwise}; fi"
    node = CommandNode(name="work", argv=("/bin/sh", "-c", script), prompt="${task}", output="report")
    return Actor(name="tests/external", entry="work", nodes=(node,), state=(StateKey("report"),))


class FailsOnce:
    """Fails once when the recording of a resolution begins."""

    armed = False

    def reach(self, name: str) -> None:
        if self.armed and name == "resolve.started.after":
            self.armed = False
            raise GitFailed("git add", "no space left")


def begun(bench: AgentBench, text: str) -> None:
    (bench.repository / "f.txt").write_text(text)
    git(bench.repository, "add", ".")
    git(bench.repository, "commit", "-qm", "Begin")


def test_an_interrupted_recording_of_a_resolution_hides_no_edits(tmp_path: Path) -> None:
    faults = FailsOnce()
    bench = AgentBench(tmp_path, faults=faults)
    with bench.container:
        begun(bench, "one\n")
        plan = bench.work(bench.task(editing("echo agent > f.txt"), profile="full-auto"))
        (bench.repository / "f.txt").write_text("user\n")
        with pytest.raises(ApplyConflict):
            bench.apply(plan)
        faults.armed = True
        plan = bench.work(bench.parts.rebase.rebase(bench.now(plan)))
        assert plan.state is PlanState.ERRORED
        plan = bench.work(bench.resume(plan))
        assert plan.state is PlanState.COMPLETE
        assert bench.parts.history.open_calls(plan.id) == []
        (bench.sandbox(plan).root / "by_hand.txt").write_text("mine\n")
        with pytest.raises(NeedsHuman, match=r"unrecorded edits in the sandbox: by_hand\.txt"):
            bench.apply(plan)


def test_a_rebase_resolves_no_comment_although_it_changes_its_lines(tmp_path: Path) -> None:
    bench = AgentBench(tmp_path)
    with bench.container:
        begun(bench, "one\n" + "\n".join(f"line {number}" for number in range(2, 20)) + "\nrisky = 1\n")
        plan = bench.work(bench.task(editing("sed -i s/^one$/ONE/ f.txt"), profile="full-auto"))
        comments, lines = bench.parts.comments, CommentLines("f.txt", 20, 20)
        comments.add(plan, "validate this value", author="ada", lines=lines)
        _, plan = comments.revise(bench.now(plan), "please")
        plan = bench.work(plan)
        file = bench.repository / "f.txt"
        file.write_text(file.read_text().replace("one\n", "uno\n", 1).replace("risky = 1", "risky = 2"))
        with pytest.raises(ApplyConflict):
            bench.apply(plan)
        plan = bench.work(bench.parts.rebase.rebase(bench.now(plan)))
        assert (bench.sandbox(plan).root / "f.txt").read_text().endswith("risky = 2\n")
        assert [one.state for one in comments.store.of_plan(plan.id)] == [CommentState.OPEN]
