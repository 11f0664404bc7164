"""Leak checks: threads, tasks, child processes and file descriptors must return to the baseline.

Used around every test module by `tests/conftest.py`, and by the Behave and Robot environments. A task that
never ended is found while it is referenced; for an unreferenced one, asyncio logs that it was destroyed while
pending. A test declares intentional leaks with `abandoned`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Baseline", "abandoned", "take_baseline"]

_SETTLE_SECONDS = 30.0


@dataclass(frozen=True)
class Baseline:
    """The state before the tests."""

    threads: frozenset[int]
    children: frozenset[int]
    descriptors: Counter[str]
    tasks: frozenset[int]
    destroyed: int

    def leaks(self) -> list[str]:
        """Return new leaks, after giving endings in progress a moment to complete."""
        give_up = time.monotonic() + _SETTLE_SECONDS
        found = self._compare()
        while found and time.monotonic() < give_up:
            gc.collect()
            threading.Event().wait(0.02)
            found = self._compare()
        return found

    def _compare(self) -> list[str]:
        now = take_baseline()
        named = {t.ident: t.name for t in threading.enumerate()}
        found = [f"thread {named.get(ident, ident)}" for ident in now.threads - self.threads]
        found += [f"child process {_describe(pid)}" for pid in now.children - self.children]
        found += [f"{n} × {name}" for name, n in (now.descriptors - self.descriptors).items()]
        found += [f"task {task!r}" for task in _pending() if id(task) in now.tasks - self.tasks]
        found += _DESTROYED[self.destroyed :]
        return found


def take_baseline() -> Baseline:
    """Return the current state."""
    return Baseline(
        threads=frozenset(t.ident for t in threading.enumerate() if t.ident is not None),
        children=frozenset(p.pid for p in psutil.Process().children(recursive=True)),
        descriptors=_descriptors(),
        tasks=frozenset(id(task) for task in _pending()),
        destroyed=len(_DESTROYED),
    )


@contextmanager
def abandoned() -> Iterator[None]:
    """Accept everything that is pending after the block and was not before: it cannot be ended any more."""
    before = {id(task) for task in _pending()}
    yield
    # Referenced forever: otherwise asyncio would log that it was destroyed.
    _ABANDONED.extend(task for task in _pending() if id(task) not in before)


_ABANDONED: list[asyncio.Task[object]] = []
_DESTROYED: list[str] = []


class _Listener(logging.Handler):
    """Detects asyncio's message that a task was destroyed while it was pending."""

    def emit(self, record: logging.LogRecord) -> None:
        if "was destroyed but it is pending" in record.getMessage():
            _DESTROYED.append(record.getMessage().replace("\n", " "))


logging.getLogger("asyncio").addHandler(_Listener())


def _pending() -> list[asyncio.Task[object]]:
    """Return pending tasks of all loops; none if the interpreter cannot list them."""
    everyone = getattr(asyncio.tasks, "_scheduled_tasks", None) or getattr(asyncio.tasks, "_all_tasks", ())
    while True:
        try:
            known = list(everyone)
        except RuntimeError:  # another thread created one meanwhile
            continue
        return [task for task in known if not task.done() and task not in _ABANDONED]


def _descriptors() -> Counter[str]:
    names: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue  # the descriptor that lists the directory
        names[target.split(":[")[0]] += 1
    return names


def _describe(pid: int) -> str:
    try:
        return f"{pid} {' '.join(psutil.Process(pid).cmdline())}"
    except psutil.Error:
        return str(pid)
