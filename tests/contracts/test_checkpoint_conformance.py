"""LangGraph's published conformance suite for checkpointers, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import validate
from langgraph.checkpoint.conformance.capabilities import BASE_CAPABILITIES
from langgraph.checkpoint.conformance.initializer import RegisteredCheckpointer

from cleveragents.actors.graph.checkpoint_saver import DatabaseCheckpointSaver
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.storage.database import Database


def test_the_conformance_suite_passes_for_every_claimed_capability(database: Database) -> None:
    """The capabilities of every saver.

    Runs need neither copying nor thinning out of threads: superseded checkpoints are deleted with the one
    that supersedes them.
    """

    async def factory() -> AsyncGenerator[BaseCheckpointSaver[str], None]:
        yield DatabaseCheckpointSaver(SqlCheckpointStore(database))

    report = asyncio.run(validate(RegisteredCheckpointer("ours", factory)))
    claimed = {capability.value for capability in BASE_CAPABILITIES}
    assert {name for name, result in report.results.items() if result.detected} == claimed
    for name in claimed:
        result = report.results[name]
        assert result.failures == []
        assert result.passed
        assert result.tests_passed > 0
