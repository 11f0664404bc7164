"""A plan is watched until it rests, and what it printed last is not lost."""

from __future__ import annotations

from datetime import UTC, datetime

from cleveragents.api.plans.client import watched
from cleveragents.api.plans.detail_views import OutputView


def piece(number: int) -> OutputView:
    return OutputView(plan_id="P", number=number, kind="output", text=f"{number}\n", time=datetime.now(UTC))


def test_output_that_is_stored_after_the_plan_rests_is_read() -> None:
    stored: list[OutputView] = [piece(1)]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            stored.append(piece(2))

    seen = watched(lambda: True, lambda after: stored[after:], sleep)
    assert [one.number for one in seen] == [1, 2]
    assert 0.5 <= sum(slept) < 2


def test_a_plan_that_runs_is_looked_at_less_and_less_often() -> None:
    slept: list[float] = []
    seen = watched(lambda: len(slept) > 20, lambda after: (), slept.append)
    assert [*seen] == []
    assert slept[0] == 0.1
    assert max(slept) == 1.0
