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

TABLES = ("tool_calls", "changesets", "change_entries", "check_runs", "sandboxes")
"""The tables whose rows many fields of a view are computed from."""


@contextmanager
def counted_reads() -> Iterator[Counter[str]]:
    """Count the queries of each table, equal parameters only."""
    found: Counter[tuple[str, str]] = Counter()
    most: Counter[str] = Counter()

    def count(_connection: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        table = statement.rpartition("FROM ")[2].split()[0]
        found[table, repr(parameters)] += 1
        most[table] = max(most[table], found[table, repr(parameters)])

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield most
    finally:
        event.remove(Engine, "before_cursor_execute", count)


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
        with counted_reads() as of_view:
            client.plans.get(plan.id)
        with counted_reads() as of_list:
            client.plans.list()
    assert {table: of_view[table] for table in TABLES} == dict.fromkeys(TABLES, 1)
    assert max(of_list[table] for table in TABLES) == 1
