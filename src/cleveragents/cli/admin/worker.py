"""`agents worker`: one more worker for the plans of a server, here or on another machine."""

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
    "--concurrency", metavar="N", type=click.IntRange(1, 1000), help="Jobs at once; as the settings say."
)
@click.option("--name", metavar="NAME", help="What others see it as; the machine's name and the process.")
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME", help="Where it takes jobs from; may be repeated."
)
@click.option("--until-idle", is_flag=True, help="End when nothing is queued there or runs, anywhere.")
@click.option(
    "--drain-seconds",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, 86_400),
    help="How long running jobs may go on after it is told to stop.",
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
    """Run plans of a server, as one more worker.

    It takes jobs from the database that the settings name, on this machine or from another. What a worker
    left that died, any other takes up. Started before the database or Temporal answers, it waits for that.
    SIGTERM or Ctrl-C lets running jobs end and takes no more; a second one stops them at once, and another
    worker goes on with them.

    It does not start where commands of plans cannot be isolated, unless you pass --allow-unisolated.

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
            progress(f"{known_as} takes jobs from {places}, {counted(at_once, 'job')} at once")
            told.wait_until(lambda: until_idle and parts.is_idle(queues))
            _drain(started, told, drain_seconds)
        progress(f"{known_as} is gone; it was at {counted(started.ended, 'job')}")
    if told.interrupted:
        raise click.exceptions.Exit(_INTERRUPTED)


class _Told:
    """The signals that came, through a pipe: a handler may do no more.

    Not thread-safe: use it on the main thread.
    """

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self.interrupted = False
        self.count = 0

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Returns when that is so, or one more signal came."""
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
    """SIGTERM and Ctrl-C are told, instead of ending the process."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def tell(number: int, frame: object) -> None:
        with suppress(BlockingIOError):  # it is full of such signals
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
    """Returns when it runs nothing any more, or is told once more, or the time is over."""
    if told.count:
        left = f"{counted(started.running, 'job')} may go on for {seconds:g} s"
        progress(f"stopping: no more jobs are taken, {left} (once more stops them at once)")
    ended = threading.Event()

    def drain() -> None:
        try:
            started.drain(seconds if told.count else _FOREVER)
        finally:
            ended.set()

    threading.Thread(target=drain, name="drain", daemon=True).start()
    told.wait_until(ended.is_set)
    if not ended.is_set():
        progress("stopping at once: another worker goes on with what it was at")
