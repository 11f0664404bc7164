"""Invariants about paths are enforced on every change by any tool."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleveragents.core.actions.model import Invariant, broken_by
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.output_recorder import PlanWatch
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
        ("Never touch the migrations/ directory", "migrations/0001.py", True),
        ("never touch migrations", "app/migrations/0001.py", True),
        ("never touch Dockerfile", "Dockerfile", True),
        ("never edit the migrations folder", "migrations/0001.py", True),
        ("You must not touch migrations/", "migrations/0001.py", True),
        ("Do not modify files in migrations/", "migrations/0001.py", True),
        ("never touch migrations/ or the database schema", "migrations/0001.py", True),
        ("never touch migrations/ or the database schema", "schema", False),
        ("Don’t edit or delete (`migrations/`)!", "migrations/0001.py", True),
        ("The API stays. Never touch a.py. The b.py is new.", "a.py", True),
        ("The API stays. Never touch a.py. The b.py is new.", "b.py", False),
        ("never touch a.py\nnever edit b.py", "b.py", True),
        ("never touch run/", "run/x", True),
        ("never touch the legacy migrations/ directory", "migrations/0001.py", True),
    ],
)
def test_a_pattern_forbids_what_it_says(text: str, path: str, forbidden: bool) -> None:
    assert Invariant.parse(text).forbids(path) is forbidden


@pytest.mark.parametrize(
    "text",
    [
        "keep the public API",
        "never touch the old exporter",
        "never change",
        "never touch anything",
        "",
        "touch a.py",
        "never touch files outside src/",
        "never change anything but docs/",
        "If the tests fail, do not touch src/",
        "never change the signatures in src/api.py",
        "never write secrets to .env",
        "never touch a.py, always edit b.py",
        "never write comments",
    ],
)
def test_invariants_without_paths_are_not_enforced(text: str) -> None:
    parsed = Invariant.parse(text)
    assert (parsed.patterns, parsed.kept) == ((), ())
    assert parsed.enforcement == "not enforced, only part of the actors' prompt"
    assert broken_by([text], ["a.py", "the"]) is None


@pytest.mark.parametrize(
    ("text", "enforcement"),
    [
        ("never touch a.py, b/", "enforced: a.py, b/ may not be changed"),
        ("never delete migrations/", "enforced: migrations/ may not be deleted, moved or renamed"),
        ("never move a.py to b/", "enforced: a.py may not be deleted, moved or renamed"),
        (
            "never edit a.py; do not rename b.py",
            "enforced: a.py may not be changed; b.py may not be deleted, moved or renamed",
        ),
    ],
)
def test_standing_describes_the_enforced_parts(text: str, enforcement: str) -> None:
    assert Invariant.parse(text).enforcement == enforcement


def test_a_file_that_may_not_be_deleted_may_be_changed(plans: PlanBench) -> None:
    keep = ("never delete folder/",)
    changed = plans.done(write("folder/new.txt", "x"), invariants=keep)
    assert changed.state is PlanState.COMPLETE, changed.error
    for gone in (step("delete", path="folder/c.txt"), command("rm folder/c.txt")):
        plan = plans.done(gone, invariants=keep)
        assert plan.state is PlanState.ERRORED
        assert "folder/c.txt was deleted, which an invariant forbids: never delete folder/" in str(plan.error)


def test_the_start_of_a_plan_lists_enforced_invariants(plans: PlanBench) -> None:
    said: list[str] = []
    plans.adapt = lambda run: replace(run, watch=lambda plan: PlanWatch(said.append))
    plans.done(command("true"), invariants=("never touch folder/", "be kind"))
    assert said[:2] == [
        "invariant, enforced: folder/ may not be changed (never touch folder/)",
        "invariant, not enforced, only part of the actors' prompt (be kind)",
    ]


def test_a_tool_that_would_break_an_invariant_changes_nothing(plans: PlanBench) -> None:
    plan = plans.done(write("folder/new.txt", "x"), invariants=("never touch folder/",))
    assert plan.state is PlanState.ERRORED
    assert "never touch folder/" in str(plan.error)
    assert "nothing was changed" in str(plan.error)  # refused, not reverted
    assert not plans.parts.history.changes(plan.id)


def test_a_move_out_of_a_forbidden_place_is_a_change_of_it(plans: PlanBench) -> None:
    move = step("move", source="folder/c.txt", target="c.txt")
    plan = plans.done(move, invariants=("never touch folder/",))
    assert plan.state is PlanState.ERRORED
    assert not plans.parts.history.changes(plan.id)


def test_reverts_a_command_that_breaks_an_invariant(plans: PlanBench) -> None:
    both = command("echo x > a.txt; rm -r folder", continue_on_failure=True)
    plan = plans.done(both, write("b.txt", "beta\n"), invariants=("never touch folder/",))
    assert plan.state is PlanState.COMPLETE
    assert sorted(plans.parts.history.states(plan.id)) == ["b.txt"]
    failed = plans.parts.history.calls(plan.id)[0]
    assert "reverted" in str(failed.error)
    assert "folder/c.txt" in str(failed.error)
    assert (plans.parts.sandboxes.open(plan.id).root / "folder/c.txt").read_text() == "gamma\n"
