"""LangGraph's published suite for checkpointers, on ours, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES, BASE_CAPABILITIES, Capability
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

from cleveragents.infrastructure.persistence.database import Database
from cleveragents.infrastructure.persistence.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.infrastructure.persistence.sql_checkpoint_upkeep import SqlCheckpointUpkeep
from cleveragents.langgraph.checkpoint_saver import DatabaseCheckpointSaver
from cleveragents.langgraph.checkpoint_upkeep import UpkeepCheckpointSaver


def the_saver_of_runs(database: Database) -> DatabaseCheckpointSaver:
    return DatabaseCheckpointSaver(SqlCheckpointStore(database))


def the_saver_that_tidies_up(database: Database) -> UpkeepCheckpointSaver:
    return UpkeepCheckpointSaver(SqlCheckpointStore(database), SqlCheckpointUpkeep(database))


@pytest.mark.parametrize(
    ("make", "claimed"),
    [(the_saver_of_runs, BASE_CAPABILITIES), (the_saver_that_tidies_up, ALL_CAPABILITIES)],
)
def test_the_suite_passes_for_every_capability_that_is_claimed(
    database: Database,
    make: Callable[[Database], BaseCheckpointSaver[str]],
    claimed: frozenset[Capability],
) -> None:
    async def factory() -> AsyncGenerator[BaseCheckpointSaver[str], None]:
        yield make(database)

    report = asyncio.run(validate(RegisteredCheckpointer("ours", factory)))
    assert {name for name, result in report.results.items() if result.detected} == {c.value for c in claimed}
    for capability in claimed:
        result = report.results[capability.value]
        assert result.failures == []
        assert result.passed
        assert result.tests_passed > 0
