"""A killed graph continues in another process, and no finished node runs again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.actors.graph.checkpoint_saver import DatabaseCheckpointSaver
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.storage.database import Database, open_database
from tests.crash.programs.graph_walker import INPUT, NODES, graph_of
from tests.fork_server import Forked
from tests.ready_database import ready_database

PROGRAM = [sys.executable, "-m", "tests.crash.programs.graph_walker"]
SECONDS_LIMIT = 240.0
AT = {"configurable": {"thread_id": "plan/execute"}}


class Walker:
    """Runs graphs in processes that are killed at given points."""

    def __init__(self) -> None:
        self._process = Forked(PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def walk(self, *arguments: str) -> int:
        """Return the exit code of the process that ran the graph, completely or not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"arguments": arguments}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=SECONDS_LIMIT)


@pytest.fixture(scope="module")
def walker() -> Iterator[Walker]:
    made = Walker()
    yield made
    made.close()


def lines(journal: Path) -> list[str]:
    return journal.read_text().split() if journal.exists() else []


def kept(database: Database) -> list[str]:
    """Return the nodes that the database knows as finished: from the state, or from a task's writes for the
    next.
    """
    found = DatabaseCheckpointSaver(SqlCheckpointStore(database)).get_tuple(AT)
    if found is None:
        return []
    log = list(found.checkpoint["channel_values"].get("log", []))
    for _, channel, value in found.pending_writes or []:
        if channel == "log":
            log += value
    return log


# Reached first by the input, then by the first node's writes, by its checkpoint, …
@pytest.mark.parametrize(
    ("point", "nth", "which"),
    [
        ("store.write.before_commit", 2, "all"),
        ("store.write.after_commit", 3, "all"),
        ("store.write.before_commit", 5, "all"),
        ("store.write.after_commit", 6, "all"),
        ("store.write.after_commit", 1, "last"),
        ("store.write.before_commit", 2, "last"),
        ("store.write.after_commit", 3, "last"),
        ("store.write.before_commit", 4, "last"),
    ],
)
def test_a_killed_graph_resumes_without_repeating_nodes(
    walker: Walker, tmp_path: Path, point: str, nth: int, which: str
) -> None:
    url = ready_database(tmp_path / "graphs.db")
    journal = tmp_path / "journal"
    assert walker.walk(url, "plan/execute", str(journal), point, str(nth), which) == -signal.SIGKILL
    before = lines(journal)
    with open_database(url) as database:
        done = kept(database)
        # At most the last executed node is not known as finished.
        assert before in (done, [*done, *NODES[len(done) : len(done) + 1]])
        graph = graph_of(DatabaseCheckpointSaver(SqlCheckpointStore(database)), journal)
        begun = graph.get_state(AT).config["configurable"].get("checkpoint_id") is not None
        ended = graph.invoke(None if begun else INPUT, AT, durability="sync")
    assert ended == {**INPUT, "log": list(NODES)}
    assert lines(journal)[len(before) :] == list(NODES[len(done) :])


def test_concurrent_graphs_lose_nothing(tmp_path: Path) -> None:
    url = ready_database(tmp_path / "graphs.db")
    running = [
        Forked([*PROGRAM, url, f"plan/{number}", str(tmp_path / str(number)), "-", "1", "all"])
        for number in range(3)
    ]
    for process in running:
        assert process.wait(SECONDS_LIMIT) == 0
    with open_database(url) as database:
        saver = DatabaseCheckpointSaver(SqlCheckpointStore(database))
        for number in range(3):
            found = saver.get_tuple({"configurable": {"thread_id": f"plan/{number}"}})
            assert found is not None
            assert found.checkpoint["channel_values"] == {**INPUT, "log": list(NODES)}
            assert lines(tmp_path / str(number)) == list(NODES)
        assert len(list(saver.list(None))) == 3 * (len(NODES) + 2)
