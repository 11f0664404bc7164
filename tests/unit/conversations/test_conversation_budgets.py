"""The budget of a conversation, which covers its turns and its plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.conversations.model import NewConversation
from cleveragents.conversations.store import SqlConversationStore
from cleveragents.core.clock import SystemClock
from cleveragents.models.model.budget import BudgetLimits
from cleveragents.models.store.sql_budget_store import SqlBudgetStore
from cleveragents.storage.database import Database, open_database
from cleveragents.testing.clock import CountingIdentifiers
from tests.ready_database import ready_database

LIMITS = BudgetLimits(tokens=5_000, steps=3)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(ready_database(tmp_path / "state.db")) as opened:
        yield opened


def test_a_conversation_and_its_budget_are_stored_together(database: Database) -> None:
    """A process that is killed after the store has returned leaves no session without limits."""
    store = SqlConversationStore(database, CountingIdentifiers("id"))
    budgets = SqlBudgetStore(database, CountingIdentifiers("event"))
    now = SystemClock().now()
    made = store.create(NewConversation("default", "/r", limits=LIMITS), now=now)
    assert budgets.view(made.id).limits == LIMITS
    fork = store.fork(made.id, turn=None, by=None, now=now)
    assert budgets.view(fork.id).limits == LIMITS
    store.delete(made.id, now=now)
    assert budgets.view(made.id).limits == BudgetLimits()
