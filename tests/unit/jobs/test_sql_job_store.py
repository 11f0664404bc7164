"""The queries of an idle worker on a database with other writers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from cleveragents.core.identifiers import UlidSource, WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import open_database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ME = WorkerIdentity("me", "here", 1, 0)


def test_an_idle_worker_polls_without_the_write_lock_even_after_being_busy(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_database(f"sqlite:///{path}", patience_seconds=0.1) as database:
        store = SqlJobStore(database, UlidSource())
        store.submit(NewJob("noop", {}), now=NOW)
        job = store.claim(ME, ("noop",), now=NOW)
        assert job is not None
        store.finish(job.id, job.fence, AttemptOutcome(JobState.SUCCEEDED), now=NOW)
        assert store.claim(ME, ("noop",), now=NOW) is None, "the queue is empty, and it knows that now"
        with closing(sqlite3.connect(path, isolation_level=None)) as somebody:
            somebody.execute("BEGIN IMMEDIATE")
            assert store.claim(ME, ("noop",), now=NOW) is None


def test_a_worker_whose_kind_is_full_asks_without_the_write_lock(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_database(f"sqlite:///{path}", patience_seconds=0.1) as database:
        store = SqlJobStore(database, UlidSource())
        for _ in range(3):
            store.submit(NewJob("noop", {}, at_most=1), now=NOW)
        job = store.claim(ME, ("noop", "other"), now=NOW)
        assert job is not None
        assert store.claim(ME, ("noop", "other"), now=NOW) is None, "full, and it knows that now"
        with closing(sqlite3.connect(path, isolation_level=None)) as somebody:
            somebody.execute("BEGIN IMMEDIATE")
            assert store.claim(ME, ("noop", "other"), now=NOW) is None
        store.finish(job.id, job.fence, AttemptOutcome(JobState.SUCCEEDED), now=NOW)
        assert store.claim(ME, ("noop", "other"), now=NOW) is not None


def test_skips_the_queued_jobs_of_a_full_kind_in_one_step(tmp_path: Path) -> None:
    """Their rows are not read: the index has their kind and their limit."""
    with open_database(f"sqlite:///{tmp_path}/store.db") as database, database.read() as connection:
        query = "SELECT * FROM jobs WHERE state = 'queued' AND kind IN ('a', 'b') AND not_before <= 1"
        query += " AND (kind != 'a' OR at_most IS NULL OR at_most > 1) ORDER BY priority DESC, number LIMIT 1"
        plan = " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}"))
        assert "ix_jobs_claimable" in plan
        assert "TEMP B-TREE" not in plan, "it would sort all that are queued"
        count = "SELECT count(*) FROM jobs WHERE state = 'running' AND kind = 'a'"
        plan = " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {count}"))
        assert "ix_jobs_running" in plan
