"""Caches for the explorers; the exploration and its results stay the same.

For every opcode frontrun looks up the instructions of the running function in a table keyed by code objects:
each look-up hashes a whole code object, and the table is cleared after every schedule. At every call it
compares the file with a list of directories to decide whether to trace it. interleave-test computes the line
of every step, in case this schedule fails, and resolves the path of every file in every schedule.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import CodeType, SimpleNamespace
from typing import Any, NamedTuple

__all__ = ["quicker_frontrun", "quicker_interleave"]

Instructions = dict[int, dis.Instruction]

# By id, because hashing a code object is slow; each is kept alive, so that no other gets its id.
_taken_apart: dict[int, tuple[CodeType, Instructions]] = {}


class _Step(NamedTuple):
    """Like interleave-test's own class, whose way of freezing takes eight times as long."""

    index: int
    chosen: int
    runnable: tuple[int, ...]
    kind: str
    location: str
    thread_name: str


@contextmanager
def quicker_frontrun() -> Iterator[None]:
    """Speed up frontrun during the block."""
    from frontrun import _opcode_observer, _trace_format, _tracing
    from frontrun._dpor_runtime import scheduler

    with (
        _replaced(_opcode_observer, "_get_instructions", _instructions),
        _replaced(scheduler, "_get_instructions", _instructions),
        _replaced(_trace_format, "_get_instruction", lambda code, offset: _instructions(code).get(offset)),
        _replaced(_opcode_observer, "_should_trace_file", cache(_tracing.should_trace_file)),
    ):
        yield


@contextmanager
def quicker_interleave() -> Iterator[None]:
    """Speed up interleave-test during the block."""
    from interleave_test import _scheduler

    # No code of this file may run in between: it is traced, and its steps would become part of the schedule.
    everywhere = SimpleNamespace(_include=None, _exclude=[])
    traced = cache(partial(_scheduler.Scheduler._compute_should_trace, everywhere))
    with (
        _replaced(_scheduler, "Step", _Step),
        _replaced(_scheduler, "_fmt_loc", cache(_scheduler._fmt_loc)),
        _replaced(_scheduler.Scheduler, "_compute_should_trace", staticmethod(traced)),
    ):
        yield


def _instructions(code: CodeType) -> Instructions:
    try:
        return _taken_apart[id(code)][1]
    except KeyError:
        found = {one.offset: one for one in dis.get_instructions(code)}
        _taken_apart[id(code)] = (code, found)
        return found


@contextmanager
def _replaced(owner: Any, name: str, function: object) -> Iterator[None]:
    before = getattr(owner, name)  # fails here if a later version renames it
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)
