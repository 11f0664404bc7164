"""Trees of plans grow to their limits and no further, over SQLite and PostgreSQL."""

from __future__ import annotations

import pytest

from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.database import Database
from cleveragents.testing.clock import CountingIdentifiers
from tests.races.hammer import SWITCH_INTERVALS, hammer, switch_interval
from tests.races.plan_spawner import FULL, grow, parent_in, sizes


@pytest.mark.parametrize("interval", SWITCH_INTERVALS)
def test_eight_threads_fill_a_tree_exactly(database: Database, interval: float) -> None:
    parent, job_id = parent_in(database)
    plans = SqlPlanStore(database, CountingIdentifiers("new"))
    refused: list[str] = []
    with switch_interval(interval):
        hammer(lambda number: grow(plans, parent, job_id, str(number), refused))
    assert sizes(database, parent.id) == FULL
    assert refused
