"""Started and recorded changesets are durable and without gaps, even if the process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from cleveragents.changes.execution_context import PlanExecutionContext
from cleveragents.changes.store.sql_changeset_store import SqlChangesetStore
from cleveragents.core.change import ChangeEntry, ChangeKind
from cleveragents.core.identifiers import UlidSource
from cleveragents.storage.database import open_database
from tests.crash.programs.change_recorder import THREADS
from tests.fork_server import Forked
from tests.ready_database import ready_database

PROGRAM = "tests.crash.programs.change_recorder"


def run_until_killed(url: str, *, point: str = "-", nth: int = 1, kill_after: int | None = None) -> list[str]:
    """Return the acknowledgements of the recorder before it was killed."""
    command = [sys.executable, "-m", PROGRAM, url, "2000", point, str(nth)]
    told: list[str] = []
    with Forked(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told.append(line.rstrip("\n"))
            if len(told) == kill_after:
                process.kill()
        assert process.wait(240) == -signal.SIGKILL
    return told


def check_kept(url: str, told: list[str]) -> None:
    """All acknowledged records exist without gaps, and at most one more per thread: the one in flight."""
    started = [line.split()[1] for line in told if line.startswith("start ")]
    recorded: dict[str, dict[int, str]] = defaultdict(dict)
    for line in told:
        if not line.startswith("start "):
            changeset, sequence, path = line.split()
            recorded[changeset][int(sequence)] = path
    with open_database(url) as database:
        store = SqlChangesetStore(database, UlidSource())
        kept = {changeset.id: store.entries(changeset.id) for changeset in store.of_plan("plan")}
        assert set(started) <= set(kept)
        for changeset, entries in kept.items():
            assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
            by_number = {entry.sequence: entry.entry.path for entry in entries}
            assert recorded[changeset].items() <= by_number.items()
        unacknowledged = sum(map(len, kept.values())) - sum(map(len, recorded.values()))
        assert 0 <= unacknowledged <= THREADS
        go_on(store, kept)


def go_on(store: SqlChangesetStore, kept: dict[str, object]) -> None:
    """After a restart, a retry of the record in flight records once, and numbers have no gap."""
    context = PlanExecutionContext("plan", store)
    for changeset in kept:
        if store.get(changeset).closed:
            continue
        entries = store.entries(changeset)
        if entries:
            last = entries[-1]
            assert context.record_change(last.entry, changeset, key=last.key) == last
        fresh = context.record_change(ChangeEntry(ChangeKind.CREATE, "after"), changeset)
        assert fresh.sequence == len(entries) + 1


# Reached first by the migration, then by each start and each batch of records.
@pytest.mark.parametrize("nth", [2, 3, 12, 60])
@pytest.mark.parametrize("point", ["store.write.before_commit", "store.write.after_commit"])
def test_a_kill_at_a_commit_loses_nothing_acknowledged(tmp_path: Path, point: str, nth: int) -> None:
    url = ready_database(tmp_path / "changes.db")
    told = run_until_killed(url, point=point, nth=nth)
    check_kept(url, told)


def test_a_kill_at_any_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    for kill_after in (1, 333):
        url = ready_database(tmp_path / f"changes-{kill_after}.db")
        check_kept(url, run_until_killed(url, kill_after=kill_after))
