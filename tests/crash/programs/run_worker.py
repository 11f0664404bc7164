"""`python -m tests.crash.programs.run_worker '{…}'`: a worker on a real store, which dies on request.

The argument is JSON: `url`, `crash_at` or `stop_at` (a fault point), and options of the worker. It runs until
no job is left, and prints its statistics as a line of JSON.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from itertools import count
from typing import Any

import structlog
from msgspec.structs import asdict

from cleveragents.core.clock import SystemClock
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import UlidSource
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor
from cleveragents.jobs.store.sql_job_store import SqlJobStore
from cleveragents.jobs.worker.async_worker import AsyncJob, AsyncWorker
from cleveragents.jobs.worker.attempt import WorkerOptions
from cleveragents.storage.database import Database, open_database
from cleveragents.testing.clock import CrashAt
from tests.crash.programs.job_handlers import append, escape

HANDLERS = "tests.crash.programs.job_handlers"


class StopAt:
    """SIGSTOPs this process the `nth` time `name` is reached.

    With a `database`, right after a commit: only one thread commits at a time, so no other thread here holds
    SQLite's one lock, for which others would wait until they give up.
    """

    def __init__(self, name: str, nth: int) -> None:
        self.database: Database | None = None
        self._name = name
        self._nth = nth
        self._seen = count(1)
        self._due = threading.Event()

    def reach(self, name: str) -> None:
        if name == "store.write.after_commit" and self._due.is_set():
            self._due.clear()
            _stop()
        elif name == self._name and next(self._seen) == self._nth:
            if self.database is None:
                _stop()
            else:
                self._due.set()
                self.database.write(lambda connection: None)


def _stop() -> None:
    # To this thread, which then takes no further step; sent to the process, it might.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def first_attempt_waits(job: AsyncJob) -> int:
    """Wait long enough for heartbeats; a later attempt is done at once."""
    if job.attempt == 1:
        job.token.wait(60)
    return append(job)


def wait_for_a_process(job: AsyncJob) -> None:
    """On the worker's own thread, so that no guard supervises its processes."""
    escape("setsid", str(job.payload["fifo"]), job.environment).wait()


def make_worker(database: Database, faults: FaultPoints, **options: Any) -> AsyncWorker:
    handlers = {
        "append": JobHandler(append),
        "wait": JobHandler(first_attempt_waits),
        "start": JobHandler(wait_for_a_process),
        "tree": JobHandler(target=f"{HANDLERS}:grow_a_tree_and_hang", isolation="process"),
    }
    store = SqlJobStore(database, UlidSource())
    return AsyncWorker(
        store, handlers, SystemClock(), PsutilProcessSupervisor(), WorkerOptions(**options), faults=faults
    )


def main(arguments: dict[str, Any]) -> None:
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    faults: FaultPoints = NoFaults()
    if "crash_at" in arguments:
        faults = CrashAt(arguments.pop("crash_at"))
    elif "stop_at" in arguments:
        faults = StopAt(arguments.pop("stop_at"), arguments.pop("nth", 1))
    with open_database(arguments.pop("url"), faults=faults) as database:
        if isinstance(faults, StopAt):
            faults.database = database
        worker = make_worker(database, faults, **arguments)
        worker.start()
        worker.run_until_idle(240)
        worker.close()
        sys.stdout.write(json.dumps(asdict(worker.statistics())) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
