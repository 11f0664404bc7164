"""Invariants about paths are enforced on every change, by whatever tool it is made."""

from __future__ import annotations

import pytest

from cleveragents.domain.invariant import Invariant, broken_by
from cleveragents.domain.plan import PlanState
from tests.plan_bench import PlanBench, command, step, write


@pytest.mark.parametrize(
    ("text", "path", "forbidden"),
    [
        ("never touch migrations/", "migrations/0001.py", True),
        ("never touch migrations/", "app/migrations/0001.py", True),
        ("never touch migrations/", "migrations.md", False),
        ("Do not change /migrations/.", "app/migrations/0001.py", False),
        ("Do not change /migrations/.", "migrations/deep/er/0001.py", True),
        ("never edit *.lock, package.json and src/gen/**/*.ts", "a/b/uv.lock", True),
        ("never edit *.lock, package.json and src/gen/**/*.ts", "package.json", True),
        ("never edit *.lock, package.json and src/gen/**/*.ts", "src/gen/a.ts", True),
        ("never edit *.lock, package.json and src/gen/**/*.ts", "src/gen/a/b.ts", True),
        ("never edit *.lock, package.json and src/gen/**/*.ts", "src/gen/a/b.py", False),
        ("must not modify `docs/api.md`", "docs/api.md", True),
        ("must not modify docs/a?i.md", "docs/a/i.md", False),
        ("never touch a[bc].txt", "ab.txt", False),
    ],
)
def test_a_pattern_forbids_what_it_says(text: str, path: str, forbidden: bool) -> None:
    assert Invariant.parse(text).forbids(path) is forbidden


@pytest.mark.parametrize(
    "text", ["keep the public API", "never touch the old exporter", "never change", "", "touch a.py"]
)
def test_what_is_not_about_paths_is_left_to_readers(text: str) -> None:
    assert Invariant.parse(text).patterns == ()
    assert broken_by([text], ["a.py", "the"]) is None


def test_a_tool_that_would_break_an_invariant_changes_nothing(plans: PlanBench) -> None:
    plan = plans.done(write("folder/new.txt", "x"), invariants=("never touch folder/",))
    assert plan.state is PlanState.ERRORED
    assert "never touch folder/" in str(plan.error)
    assert not plans.parts.history.changes(plan.id)


def test_a_move_out_of_a_forbidden_place_is_a_change_of_it(plans: PlanBench) -> None:
    move = step("move", source="folder/c.txt", target="c.txt")
    plan = plans.done(move, invariants=("never touch folder/",))
    assert plan.state is PlanState.ERRORED
    assert not plans.parts.history.changes(plan.id)


def test_a_command_that_breaks_an_invariant_is_taken_back_whole(plans: PlanBench) -> None:
    both = command("echo x > a.txt; rm -r folder", continue_on_failure=True)
    plan = plans.done(both, write("b.txt", "beta\n"), invariants=("never touch folder/",))
    assert plan.state is PlanState.COMPLETE
    assert sorted(plans.parts.history.states(plan.id)) == ["b.txt"]
    failed = plans.parts.history.calls(plan.id)[0]
    assert "taken back" in str(failed.error)
    assert "folder/c.txt" in str(failed.error)
    assert (plans.parts.sandboxes.open(plan.id).root / "folder/c.txt").read_text() == "gamma\n"
