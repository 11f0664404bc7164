"""Trees of plans: parts that run as plans of their own, by what they need, and are merged into one result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.domain.plan import Phase, PlanState
from tests.plan_bench import command, edit, write
from tests.tree_bench import TreeBench, part, tree_bench

COMPLETE = (Phase.EXECUTE, PlanState.COMPLETE)


@pytest.fixture
def trees(tmp_path: Path) -> Iterator[TreeBench]:
    with tree_bench(tmp_path) as bench:
        yield bench


def test_what_parts_did_is_merged_into_the_whole(trees: TreeBench) -> None:
    plan = trees.worked(part("x", write("x.txt", "x\n")), part("y", edit("a.txt", "one", "ONE")))
    assert plan.standing == COMPLETE, plan.error
    assert trees.file(plan, "x.txt") == "x\n"
    assert trees.file(plan, "a.txt").startswith("ONE\n")
    assert trees.merges(plan) == ["merge-1", "merge-2"]
    trees.ensure_consistent(plan)
    trees.apply(plan)
    assert trees.text("x.txt") == "x\n"


def test_a_part_begins_with_the_merged_result_of_what_it_needs(trees: TreeBench) -> None:
    plan = trees.worked(
        part("first", write("x.txt", "1\n")),
        part("other", write("y.txt", "1\n")),
        part("then", edit("x.txt", "1", "2"), command("test -e y.txt"), needs=[1, 2]),
    )
    assert plan.standing == COMPLETE, plan.error
    assert trees.file(plan, "x.txt") == "2\n"
