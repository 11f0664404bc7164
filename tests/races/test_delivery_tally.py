"""The tally of a bus counts all problems of concurrent threads."""

from __future__ import annotations

import threading

import pytest

from cleveragents.events.subscription import DeliveryTally
from tests.races.explorers import Scenario, assert_caught, assert_holds


class UnlockedTally(DeliveryTally):
    """Counts without the lock."""

    def count_failure(self) -> None:
        self.failures += 1

    def count_refusal(self) -> None:
        self.refused += 1


def nothing_goes_uncounted(kind: type[DeliveryTally], what: str, count: str) -> Scenario[DeliveryTally]:
    return Scenario(
        f"two at once: {what}",
        kind,
        [lambda tally: getattr(tally, count)()] * 2,
        lambda tally: getattr(tally, what),
        {2}.__contains__,
        frozenset({2}),
    )


COUNTS = [("failures", "count_failure"), ("refused", "count_refusal")]


@pytest.mark.parametrize(("what", "count"), COUNTS)
def test_no_count_is_lost_between_two_threads(what: str, count: str) -> None:
    assert_holds(nothing_goes_uncounted(DeliveryTally, what, count), effort=20)


@pytest.mark.parametrize(("what", "count"), COUNTS)
def test_without_the_lock_a_count_is_lost(what: str, count: str) -> None:
    assert_caught(nothing_goes_uncounted(UnlockedTally, what, count))


def test_a_hammer_counts_every_refusal() -> None:
    tally = DeliveryTally()
    threads = [
        threading.Thread(target=lambda: [tally.count_refusal() for _ in range(2000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.refused == 8000
