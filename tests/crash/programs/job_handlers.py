"""Handlers that run in their own process, and the processes they start."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from cleveragents.core.errors import Cancelled, InvalidPayload
from cleveragents.jobs.worker.async_worker import AsyncJob

STUBBORN = "trap '' TERM; echo $$ >'{fifo}'; exec sleep 1000"
"""A process that ignores SIGTERM and prints its pid."""

WAYS_OUT: Mapping[str, str] = {
    "child": "{stubborn}",
    "double fork": '(sh -c "{stubborn}" &) ; exit 0',
    "setsid": 'exec setsid sh -c "{stubborn}"',
    "double fork, setsid, empty environment": '(env -i setsid sh -c "{stubborn}" &) ; exit 0',
}
"""Ways to escape from the process tree."""


def escape(way: str, fifo: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that ignores SIGTERM and escapes in that way."""
    stubborn = STUBBORN.format(fifo=fifo)
    command = WAYS_OUT[way].format(
        stubborn=stubborn.replace("$", r"\$") if '"' in WAYS_OUT[way] else stubborn
    )
    return subprocess.Popen(["sh", "-c", command], env={**os.environ, **environment})


def grow_a_tree_and_hang(job: AsyncJob) -> None:
    """Start one process for each way to escape, then ignore everything."""
    fifo = str(job.payload["fifo"])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    children = [escape(way, fifo, job.environment) for way in WAYS_OUT]
    _tell(fifo, os.getpid())
    for child in children:
        child.wait()
    threading.Event().wait(1000)


def leave_processes_behind(job: AsyncJob) -> int:
    """Return while its processes still run."""
    fifo = str(job.payload["fifo"])
    children = [escape(way, fifo, job.environment) for way in WAYS_OUT]
    return len(children)


def wait_for_cancel(job: AsyncJob) -> None:
    """Stop when cancelled, and return the reason."""
    _tell(str(job.payload["fifo"]), os.getpid())
    job.token.wait(60)
    job.token.raise_if_cancelled()


def wait_for_cancel_in_a_library(job: AsyncJob) -> None:
    """Stop when cancelled, by the exception of the library it waits in."""
    _tell(str(job.payload["fifo"]), os.getpid())
    job.token.wait(60)
    raise asyncio.CancelledError


def answer(job: AsyncJob) -> object:
    """Behave according to the payload."""
    sys.stdout.write("handlers print")
    return _ANSWERS[str(job.payload["how"])](job)


def _tell_all(job: AsyncJob) -> object:
    return {"attempt": job.attempt, "fence": job.fence, "kind": job.kind, "marker": [*job.markers.values()]}


def _fail(error: BaseException) -> Callable[[AsyncJob], object]:
    def fail(_: AsyncJob) -> object:
        raise error

    return fail


def _leak(job: AsyncJob) -> object:
    password = job.payload["password"]
    raise ConnectionError(f"cannot reach postgresql://bob:{password}@db with PGPASSWORD={password}")


class _Unusual(BaseException):
    """Not an `Exception`."""


def _linger(_: AsyncJob) -> object:
    threading.Thread(target=threading.Event().wait, args=(1000,)).start()
    return "lingers"


_ANSWERS: Mapping[str, Callable[[AsyncJob], object]] = {
    "return": _tell_all,
    "raise": _fail(RuntimeError("it went wrong")),
    "refuse": _fail(InvalidPayload("a test", "made up")),
    "cancelled": _fail(Cancelled("nobody asked for it")),
    "leak": _leak,
    "unusual": _fail(_Unusual("as greenlets do")),
    "asyncio": _fail(asyncio.CancelledError()),
    "future": _fail(concurrent.futures.CancelledError()),
    "exit": lambda _: sys.exit(3),
    "die": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "not json": lambda _: object(),
    "too much": lambda _: "x" * (5 * 1024 * 1024),
    "much": lambda _: "x" * (1024 * 1024),
    "linger": _linger,
}


def append(job: AsyncJob) -> int:
    """A countable effect: one line per run."""
    with Path(str(job.payload["file"])).open("a") as file:
        file.write(f"{job.attempt}\n")
    return job.attempt


def _tell(fifo: str, pid: int) -> None:
    with Path(fifo).open("w") as file:
        file.write(f"{pid}\n")
