"""Handlers that begin and end concurrently are all counted."""

from __future__ import annotations

from cleveragents.jobs.worker.async_worker import AsyncJob, CancellationToken
from cleveragents.jobs.worker.reports import BusyCount
from tests.races.explorers import Scenario, assert_holds

JOB = AsyncJob("id", "plan:1", {}, 1, 1, CancellationToken(), {})


def counted(busy: BusyCount) -> None:
    busy.counted(lambda job: None)(JOB)


def test_every_handler_is_counted_once() -> None:
    scenario: Scenario[BusyCount] = Scenario(
        name="two handlers at once",
        setup=BusyCount,
        workers=[counted, counted],
        outcome=lambda busy: (busy.running, busy.ended),
        allowed=lambda outcome: outcome == (0, 2),
        reachable=frozenset({(0, 2)}),
    )
    assert_holds(scenario)
