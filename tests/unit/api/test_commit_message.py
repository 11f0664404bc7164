"""Commit messages that are drafted from a plan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cleveragents.api.plans.changes import commit_message


def plan(goal: str, *changes: tuple[str, str]) -> Any:
    named = [SimpleNamespace(change=change, path=path) for change, path in changes]
    return SimpleNamespace(id="01X", goal=goal, changes=named)


def test_the_goal_is_the_subject_and_the_body_lists_the_files() -> None:
    drafted = commit_message(plan("add a  --json flag.\n", ("created", "a.py"), ("deleted", "b\n.py")))
    assert drafted == 'Add a --json flag\n\n- Add a.py\n- Remove "b\\n.py"'


def test_a_long_goal_is_cut_between_words_and_follows_in_full() -> None:
    goal = "Rename the option and " * 6
    subject, whole, files = commit_message(plan(goal, ("changed", "a.py"))).split("\n\n")
    assert len(subject) <= 72
    assert subject.endswith(" …")
    assert " ".join(whole.split()) == goal.strip()
    assert all(len(line) <= 72 for line in whole.splitlines())
    assert files == "- Change a.py"


@pytest.mark.parametrize("goal", ["x" * 300, "x" * 300 + " y"])
def test_a_long_word_is_cut(goal: str) -> None:
    subject = commit_message(plan(goal)).partition("\n")[0]
    assert (len(subject), subject[-1]) == (72, "…")


def test_many_files_are_counted_and_an_empty_goal_names_the_plan() -> None:
    drafted = commit_message(plan(" ", *(("changed", f"{number}.py") for number in range(23))))
    assert drafted.startswith("Apply plan 01X\n\n- Change 0.py\n")
    assert drafted.endswith("- Change 19.py\n- … and 3 more files")
