"""The views of a plan use each record of the database in one state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from cleveragents.api.client import connect
from cleveragents.api.plans.request import PlanRequest
from tests.plan_bench import new_repository

TABLES = ("tool_calls", "changesets", "change_entries", "check_runs")
"""The tables whose rows many fields of a view are computed from."""


Query = tuple[str, str]


@contextmanager
def recorded_queries() -> Iterator[list[Query]]:
    """Record statements and parameters."""
    found: list[Query] = []

    def record(_connection: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        found.append((statement, repr(parameters)))

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", record)


def repetitions(queries: list[Query], table: str) -> int:
    """Return how often the most frequent query of the table was made."""
    counts = Counter(query for query in queries if f"FROM {table} " in query[0].replace("\n", " "))
    return max(counts.values(), default=0)


def test_a_view_reads_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    repository = new_repository(tmp_path / "repository")
    edit = {"argv": ["sh", "-c", "echo more >> README.md"]}
    with connect(settings=[f"state.directory={tmp_path / 'state'}"]) as client:
        request = PlanRequest(
            action="builtin/command",
            arguments=edit,
            repository=repository,
            apply="review",
            profile="full-auto",
        )
        plan = client.plans.wait(client.plans.create(request).id)
        assert plan.status == "ready", plan.error
        with recorded_queries() as of_view:
            client.plans.get(plan.id)
        with recorded_queries() as of_list:
            client.plans.list()
        with recorded_queries() as of_requests:
            assert [one.id for one in client.plans.list(needs=["review"]).items] == [plan.id]
    assert {table: repetitions(of_view, table) for table in TABLES} == dict.fromkeys(TABLES, 1)
    assert max(repetitions(of_list, table) for table in TABLES) == 1
    # Results of tools may be megabytes, and a list has a hundred plans.
    of_calls = [statement for statement, _ in of_list if "tool_calls" in statement]
    assert all("tool_calls.tool IN" in statement for statement in of_calls), of_calls
    # Ended plans, which have no pending request, are most of a long history.
    of_plans = [statement for statement, _ in of_requests if "FROM plans" in statement.replace("\n", " ")]
    assert "plans.state IN" in of_plans[0], of_plans
