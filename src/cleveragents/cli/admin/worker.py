"""`agents worker`: a worker for the plans of a server, on any machine."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from cleveragents.cli.isolation import allow_unisolated_option, ensure_isolated
from cleveragents.cli.output import counted, progress
from cleveragents.cli.readiness import wait_until_reachable
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.app.worker_parts import SharedWorker

__all__ = ["worker"]

_LOOK_SECONDS = 0.5
_FOREVER = 30 * 24 * 3600.0
_INTERRUPTED = 130


@click.command()
@click.option(
    "--concurrency",
    metavar="N",
    type=click.IntRange(1, 1000),
    help="Jobs in parallel. Default: worker.concurrency.",
)
@click.option("--name", metavar="NAME", help="Name of the worker. Default: machine and process.")
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="Queue to take jobs from; may be repeated."
)
@click.option("--until-idle", is_flag=True, help="Exit when no job is queued or running.")
@click.option(
    "--drain-seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, 86_400),
    help="How long running jobs may continue after a stop signal.",
)
@allow_unisolated_option
@pass_session
def worker(
    session: Session,
    concurrency: int | None,
    name: str | None,
    queues: tuple[str, ...],
    until_idle: bool,
    drain_seconds: float,
    allow_unisolated: bool,
) -> None:
    """Run a worker for the plans of a server.

    The worker takes jobs from the database of the settings, and takes over jobs of dead workers. It waits
    until the database and Temporal answer. After SIGTERM or Ctrl-C it takes no more jobs and lets running
    ones end; a second signal stops them, and they return to the queue for other workers.

    The worker needs isolation for the commands of plans, unless you pass --allow-unisolated.

    \b
    Example:
      agents worker --concurrency 4 --name build-1
    """
    container = session.container(serves=True)
    ensure_isolated(container.settings.sandbox, allowed=allow_unisolated)
    parts = wait_until_reachable(container)
    known_as = name or f"{socket.gethostname()}-{os.getpid()}"
    at_once = concurrency or container.settings.worker.concurrency
    with _signals() as told:
        with parts.start(name=known_as, queues=queues, concurrency=at_once) as started:
            places = " and ".join(map(repr, queues or parts.queues))
            progress(f"worker {known_as} takes jobs from {places}; max parallel: {at_once}")
            told.wait_until(lambda: until_idle and parts.is_idle(queues))
            _drain(started, told, drain_seconds)
        progress(f"worker {known_as} has ended after {counted(started.ended, 'job')}")
    if told.interrupted:
        raise click.exceptions.Exit(_INTERRUPTED)


class _Told:
    """Counts the received signals. The signal handler only writes to a pipe, because a handler must not do
    more.

    Not thread-safe: use it on the main thread.
    """

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self.interrupted = False
        self.count = 0

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Return when the condition holds or one more signal arrives."""
        before = self.count
        while self.count == before and not done():
            self._look(_LOOK_SECONDS)

    def _look(self, timeout: float) -> None:
        ready, _, _ = select.select([self._reading], [], [], timeout)
        if ready:
            for number in os.read(self._reading, 64):
                self.count += 1
                self.interrupted = self.interrupted or number == signal.SIGINT


@contextmanager
def _signals() -> Iterator[_Told]:
    """Count SIGTERM and Ctrl-C during the block, without ending the process."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def tell(number: int, frame: object) -> None:
        with suppress(BlockingIOError):  # the pipe is full of signals
            os.write(writing, bytes([number]))

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, tell) for number in numbers}
    try:
        yield _Told(reading)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def _drain(started: SharedWorker, told: _Told, seconds: float) -> None:
    """Return when no job runs, one more signal arrives, or the time is over."""
    if told.count:
        left = f"{counted(started.running, 'job')} may continue for {seconds:g} s"
        progress(f"stopping: taking no more jobs; {left} (a second signal stops them now)")
    ended = threading.Event()

    def drain() -> None:
        try:
            started.drain(seconds if told.count else _FOREVER)
        finally:
            ended.set()

    threading.Thread(target=drain, name="drain", daemon=True).start()
    told.wait_until(ended.is_set)
    if not ended.is_set():
        progress("stopping now: running jobs return to the queue")
