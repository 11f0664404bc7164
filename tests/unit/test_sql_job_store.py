"""What an idle worker asks of a database that others write to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from cleveragents.domain.job import JobState, NewJob, Outcome, WorkerIdentity
from cleveragents.infrastructure.identifiers import UlidSource
from cleveragents.infrastructure.persistence.database import open_database
from cleveragents.infrastructure.persistence.sql_job_store import SqlJobStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ME = WorkerIdentity("me", "here", 1, 0)


def test_an_idle_worker_asks_without_the_write_lock_also_when_it_was_busy_before(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_database(f"sqlite:///{path}", patience_seconds=0.1) as database:
        store = SqlJobStore(database, UlidSource())
        store.submit(NewJob("noop", {}), now=NOW)
        job = store.claim(ME, ("noop",), now=NOW)
        assert job is not None
        store.finish(job.id, job.fence, Outcome(JobState.SUCCEEDED), now=NOW)
        assert store.claim(ME, ("noop",), now=NOW) is None, "the queue is empty, and it knows that now"
        with closing(sqlite3.connect(path, isolation_level=None)) as somebody:
            somebody.execute("BEGIN IMMEDIATE")
            assert store.claim(ME, ("noop",), now=NOW) is None
