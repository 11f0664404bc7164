"""No-op jobs claimed and finished by 1, 2, 4 and 8 processes on one SQLite file.

The aim: at least 300 a second by 4 processes, growing or flat with their number, never collapsing. Beside it
the floor: the same file's bare transactions through sqlite3, two for each job, by the same processes.
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
from typing import Any

from cleveragents.domain.job import JobState, NewJob, Outcome, WorkerIdentity
from cleveragents.infrastructure.identifiers import UlidSource
from cleveragents.infrastructure.persistence.database import open_database
from cleveragents.infrastructure.persistence.sql_job_store import SqlJobStore

_JOBS = 1200
_SECONDS_LIMIT = 120.0

Work = Callable[[str, int], None]


class JobsByProcesses:
    """What one more process is worth."""

    params = (1, 2, 4, 8)
    param_names = ("processes",)
    timeout = 300.0

    def track_jobs_per_second(self, processes: int) -> float:
        """Claimed and finished through the store; the queue is drained to the last job."""
        return _JOBS / _seconds(_drain, processes)

    def track_floor_per_second(self, processes: int) -> float:
        """Two bare transactions of one small update each."""
        return _JOBS / _seconds(_bare, processes)

    def track_against_one_process_ratio(self, processes: int) -> float:
        """Throughput by so many processes as a multiple of one process's; flat is 1."""
        return _seconds(_drain, 1) / _seconds(_drain, processes)

    track_jobs_per_second.unit = "jobs/s"
    track_floor_per_second.unit = "jobs/s"
    track_against_one_process_ratio.unit = "ratio"


def _seconds(work: Work, processes: int) -> float:
    """From the moment all processes are ready until the last one is done."""
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
            store.finish(job.id, job.fence, Outcome(JobState.SUCCEEDED), now=datetime.now(UTC))


def _bare(path: str, share: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=_SECONDS_LIMIT)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        for number in range(2 * share):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE jobs SET beat = beat + 1 WHERE number = ?", (number % _JOBS + 1,))
            connection.execute("COMMIT")
