"""The time that a tree of plans has spent: parallel calls count once, waiting does not count."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.plans.history import seconds_of_tree
from cleveragents.plans.ports.plans import CallTimes, PlanJobRun
from cleveragents.testing.clock import FakeClock

START = FakeClock().now()


def at(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def ran(began: float, ended: float) -> CallTimes:
    return CallTimes(START + at(began), START + at(ended))


def under_way(began: float, *, since: float, seen: float) -> CallTimes:
    return CallTimes(START + at(began), run=PlanJobRun(START + at(since), START + at(seen)))


@pytest.mark.parametrize(
    ("calls", "seconds"),
    [
        ([], 0),
        ([ran(0, 10)], 10),
        ([ran(0, 10), ran(20, 25)], 15),
        ([ran(0, 10), ran(10, 20)], 20),
        ([ran(0, 10), ran(5, 15)], 15),
        ([ran(5, 15), ran(0, 10)], 15),
        ([ran(0, 100), ran(10, 20), ran(30, 40)], 100),
        ([ran(10, 20), ran(0, 100), ran(90, 110)], 110),
        ([ran(10, 5)], 0),  # a clock that was set back
        ([ran(0, 10), ran(8, 5)], 10),
    ],
)
def test_parallel_calls_count_once(calls: list[CallTimes], seconds: float) -> None:
    assert seconds_of_tree(calls, START + at(1000)) == seconds


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12))
def test_counts_the_seconds_with_a_running_call(spans: list[tuple[int, int]]) -> None:
    busy = {second for began, ended in spans for second in range(began, ended)}
    assert seconds_of_tree([ran(*span) for span in spans], START) == len(busy)


def test_an_approved_call_counts_from_its_approval() -> None:
    asked = CallTimes(START, START + at(3600), asked=True, ran_seconds=2.5)
    assert seconds_of_tree([asked, ran(0, 1)], START + at(3600)) == 3.5


def test_a_running_call_counts_until_now() -> None:
    calls = [ran(0, 10), under_way(5, since=0, seen=58)]
    assert seconds_of_tree(calls, START + at(60)) == 60


def test_a_call_of_a_silent_worker_counts_until_shortly_after_it_was_seen() -> None:
    three_days = START + timedelta(days=3)
    assert seconds_of_tree([under_way(0, since=0, seen=20)], three_days) == pytest.approx(35)


def test_an_interrupted_call_of_an_earlier_attempt_does_not_count() -> None:
    """Its worker died three days ago, and another one has just claimed its job."""
    three_days = 3 * 86400.0
    begun_again = under_way(0, since=three_days, seen=three_days + 1)
    assert seconds_of_tree([begun_again], START + at(three_days + 1)) == 0
    assert seconds_of_tree([CallTimes(START)], START + at(three_days)) == 0
