"""The checker of the soak test finds plans that are lost or applied twice."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.engine_peers import books
from tests.crash.plan_soak import Account, wrong_plans

RIGHT = (
    Account("a", "command", 1, "applied", None, 1, 0, "1\n"),
    Account("b", "goal", 2, "applied", None, 1, 0, "2\n", commits=1),
    Account("c", "cancel", 3, "cancelled", "cancelled: soaked", 0, 0, None),
    Account("d", "undo", 4, "undone", None, 1, 1, None, commits=2),
)
MADE = ["a", "b", "c", "d"]


def found(account: Account, **changed: object) -> str:
    accounts = [replace(one, **changed) if one == account else one for one in RIGHT]
    [text] = wrong_plans(MADE, accounts)
    return text


def test_correct_plans_pass() -> None:
    assert wrong_plans(MADE, RIGHT) == []


def test_finds_lost_and_unknown_plans() -> None:
    assert wrong_plans(MADE, RIGHT[1:]) == ["plan a is lost"]
    assert wrong_plans(MADE[1:], RIGHT) == ["unexpected plan a"]


def test_finds_double_applies_and_undos() -> None:
    assert found(RIGHT[0], applied=2) == "plan a (command) was applied 2 times, not 1"
    assert found(RIGHT[1], commits=2) == "plan b (goal) has 2 commits, not 1"
    assert found(RIGHT[3], undone=2) == "plan d (undo) was undone 2 times, not 1"
    assert found(RIGHT[2], applied=1) == "plan c (cancel) was applied 1 times, not 0"


def test_finds_wrong_ends_and_wrong_files() -> None:
    assert found(RIGHT[0], state="errored", error="broken") == (
        "plan a (command) is errored, not applied: broken"
    )
    assert found(RIGHT[0], text=None) == "plan a (command) has None in its file, not '1\\n'"
    assert found(RIGHT[3], text="4\n") == "plan d (undo) has '4\\n' in its file, not None"


def test_finds_lost_and_repeated_jobs() -> None:
    assert books([0, 1, 2], [0, 1, 2], known=3, jobs=3) == []
    assert books([0, 1], [0], known=3, jobs=3) == []  # stopped early: nothing is lost
    assert books([0, 1, 1], [0, 1], known=3, jobs=3) == ["job 1 ran 2 times"]
    assert books([0], [0, 2], known=3, jobs=3) == ["job 2 is reported as done but never ran"]
    assert books([0, 7], [0], known=2, jobs=3) == [
        "job 7 was never queued",
        "3 jobs were queued, but 2 are known",
    ]
