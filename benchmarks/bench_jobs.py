"""No-op jobs claimed and finished by 1, 2, 4 and 8 processes on one SQLite file.

Aim: at least 300 per second with 4 processes, growing or constant with their number, never collapsing. The
floor is the same transactions directly through sqlite3, by the same number of processes, with the same short
pauses while another process has the write lock; without decisions, identifiers, JSON and SQLAlchemy.
"""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from random import random
from typing import Any

from cleveragents.core.identifiers import UlidSource, WorkerIdentity
from cleveragents.jobs.model.job import AttemptOutcome, JobState, NewJob
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.storage.database import open_database

_JOBS = 1200
_SECONDS_LIMIT = 120.0

_THIS = "SELECT * FROM jobs WHERE number = ?"
_NEXT = (
    "SELECT * FROM jobs WHERE state = 'queued' AND kind IN ('noop') AND not_before <= 1e18"
    " ORDER BY priority DESC, number LIMIT 1"
)

Work = Callable[[str, int], None]


class JobsByProcesses:
    """The effect of additional processes."""

    params = (1, 2, 4, 8)
    param_names = ("processes",)
    timeout = 300.0

    def track_jobs_per_second(self, processes: int) -> float:
        """Jobs claimed and finished through the store, until the queue is empty."""
        return _JOBS / _seconds(_drain, processes)

    def track_floor_per_second(self, processes: int) -> float:
        """The same statements directly."""
        return _JOBS / _seconds(_by_hand, processes)

    def track_against_one_process_ratio(self, processes: int) -> float:
        """Throughput relative to a single process; constant is 1."""
        return _seconds(_drain, 1) / _seconds(_drain, processes)

    def track_floor_against_one_process_ratio(self, processes: int) -> float:
        """The same for the floor: the effect of additional processes on SQLite itself."""
        return _seconds(_by_hand, 1) / _seconds(_by_hand, processes)

    track_jobs_per_second.unit = "jobs/s"
    track_floor_per_second.unit = "jobs/s"
    track_against_one_process_ratio.unit = "ratio"
    track_floor_against_one_process_ratio.unit = "ratio"


def _seconds(work: Work, processes: int) -> float:
    """Return the time from when all processes are ready until the last one is done."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as home:
        path = f"{home}/jobs.db"
        _fill(path)
        ready = spawn.Barrier(processes)
        times = spawn.SimpleQueue()
        running = [
            spawn.Process(target=_timed, args=(work, path, _JOBS // processes, ready, times))
            for _ in range(processes)
        ]
        for process in running:
            process.start()
        for process in running:
            process.join(_SECONDS_LIMIT)
        assert all(process.exitcode == 0 for process in running), [p.exitcode for p in running]
        spans = [times.get() for _ in running]
        times.close()
    return max(ended for _, ended in spans) - min(began for began, _ in spans)


def _timed(work: Work, path: str, share: int, ready: Any, times: Any) -> None:
    ready.wait(_SECONDS_LIMIT)
    began = time.monotonic()
    work(path, share)
    times.put((began, time.monotonic()))


def _fill(path: str) -> None:
    with open_database(f"sqlite:///{path}") as database:
        store = SqlJobStore(database, UlidSource())
        for number in range(_JOBS):
            store.submit(NewJob("noop", {"n": number}), now=datetime.now(UTC))


def _drain(path: str, share: int) -> None:
    me = WorkerIdentity(str(os.getpid()), "here", os.getpid(), 0)
    with open_database(f"sqlite:///{path}") as database:
        store = SqlJobStore(database, UlidSource())
        while (job := store.claim(me, ("noop",), now=datetime.now(UTC))) is not None:
            store.finish(job.id, job.fence, AttemptOutcome(JobState.SUCCEEDED), now=datetime.now(UTC))


def _by_hand(path: str, share: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=_SECONDS_LIMIT)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA busy_timeout = 0")
        while (number := _move_by_hand(connection, _NEXT, (), "running")) is not None:
            _move_by_hand(connection, _THIS, (number,), "succeeded")


def _move_by_hand(
    connection: sqlite3.Connection, query: str, parameters: tuple[int, ...], state: str
) -> int | None:
    _begin(connection)
    row = connection.execute(query, parameters).fetchone()
    if row is not None:
        connection.execute(
            "UPDATE jobs SET state = ?, attempt = attempt + 1, fence = fence + 1, beat = 0, owner_id = ?,"
            " owner_host = ?, owner_pid = ?, owner_started_ticks = ? WHERE number = ?",
            (state, "me", "here", os.getpid(), 0, row[0]),
        )
        connection.execute(
            "INSERT INTO outbox (event_id, event_type, subject, occurred_at, payload) VALUES (?, ?, ?, ?, ?)",
            (f"{state} {row[0]}", "job.claimed", str(row[0]), "2026-01-01T00:00:00+00:00", "{}"),
        )
    connection.execute("COMMIT")
    return None if row is None else int(row[0])


def _begin(connection: sqlite3.Connection) -> None:
    pause = 0.001
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError:
            time.sleep(pause * (0.5 + random()))
            pause = min(pause * 1.5, 0.008)
