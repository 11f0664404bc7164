"""The spend of an interrupted run, from its checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from cleveragents.actors.graph.checkpoint_saver import DatabaseCheckpointSaver
from cleveragents.actors.graph.run_context import spent_so_far
from cleveragents.actors.graph.state import ACCOUNT
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.models.model.budget import Spend
from cleveragents.storage.database import open_database
from tests.ready_database import ready_database


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[DatabaseCheckpointSaver]:
    with open_database(ready_database(tmp_path / "store.db")) as database:
        yield DatabaseCheckpointSaver(SqlCheckpointStore(database))


def put(saver: DatabaseCheckpointSaver, namespace: str, account: Any, **parents: str) -> Any:
    """Store a checkpoint with this account, below those of its parents."""
    values = {} if account is None else {ACCOUNT: account}
    versions: Any = dict.fromkeys(values, "0000000001.ab")
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    above: Any = {"parents": {name.replace("root", ""): id_ for name, id_ in parents.items()}}
    place: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
    return saver.put(place, checkpoint, above, versions)


def counted(path: str, steps: int) -> dict[str, Any]:
    return {"path": path, "steps": steps, "tokens": 10 * steps, "money": 100 * steps, "visits": {}}


def steps_of(saver: DatabaseCheckpointSaver) -> dict[str, int]:
    spent = asyncio.run(spent_so_far(saver, "t"))
    assert all(one == Spend(100 * one.steps, 10 * one.steps, one.steps) for one in spent.values())
    return {path: one.steps for path, one in spent.items()}


def test_running_calls_count_for_all_actors_above(saver: DatabaseCheckpointSaver) -> None:
    root = put(saver, "", counted("", 1))
    now = root["configurable"]["checkpoint_id"]
    child = put(saver, "a:1", counted("a", 2), root=now)
    here = child["configurable"]["checkpoint_id"]
    grandchild = put(saver, "a:1|b:2", counted("a.b", 4), **{"a:1": here})
    saver.put_writes(grandchild, [(ACCOUNT, {"steps": 8, "tokens": 80, "money": 800})], "task")
    assert steps_of(saver) == {"": 15, "a": 14, "a.b": 12}


def test_an_ended_call_is_counted_once(saver: DatabaseCheckpointSaver) -> None:
    root = put(saver, "", counted("", 1))
    now = root["configurable"]["checkpoint_id"]
    put(saver, "a:1", counted("a", 2), root=now)
    saver.put_writes(root, [("text", "x"), (ACCOUNT, {"steps": 2, "tokens": 20, "money": 200})], "1")
    put(saver, "b:2", counted("b", 4), root="of an earlier step")
    put(saver, "gone:3|c:4", counted("gone.c", 8), **{"gone:3": "1"})
    assert steps_of(saver)[""] == 3


def test_a_graph_that_has_only_its_input_has_spent_nothing(saver: DatabaseCheckpointSaver) -> None:
    put(saver, "", None)
    assert steps_of(saver) == {}
