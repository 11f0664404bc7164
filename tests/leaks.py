"""Nothing is left behind: threads, child processes and file descriptors return to the baseline.

Used around every test module by `tests/conftest.py`, and by the Behave and Robot environments. asyncio
tasks live in loops and loops live in threads, so a task that is leaked with its loop shows as a thread;
one whose loop was closed does not show here, and asyncio says in its log that it was destroyed.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Baseline", "take_baseline"]

_SETTLE_SECONDS = 30.0


@dataclass(frozen=True)
class Baseline:
    """What was there before."""

    threads: frozenset[int]
    children: frozenset[int]
    descriptors: Counter[str]

    def leaks(self) -> list[str]:
        """What is there now and was not then, after giving endings in progress a moment to complete."""
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
        return found


def take_baseline() -> Baseline:
    """What is there now."""
    return Baseline(
        threads=frozenset(t.ident for t in threading.enumerate() if t.ident is not None),
        children=frozenset(p.pid for p in psutil.Process().children(recursive=True)),
        descriptors=_descriptors(),
    )


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
