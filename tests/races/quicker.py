"""What the explorers find out anew with every step or schedule, found out once; what they explore and what
they say stays the same.

frontrun asks for the instructions of the running function with every opcode, in a table whose keys are codes:
each look hashes a whole code, and the table is emptied after every schedule. Whether a file is traced, it
compares with a list of directories at every call. interleave-test looks for the line of every step, in case
that this schedule fails, and resolves the path of every file in every schedule.
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

# By number, because to hash a code takes long; each is kept, so that no other gets its number.
_taken_apart: dict[int, tuple[CodeType, Instructions]] = {}


class _Step(NamedTuple):
    """As interleave-test's own, whose class is frozen by means that take eight times as long."""

    index: int
    chosen: int
    runnable: tuple[int, ...]
    kind: str
    location: str
    thread_name: str


@contextmanager
def quicker_frontrun() -> Iterator[None]:
    """As long as the block runs, for frontrun."""
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
    """As long as the block runs, for interleave-test."""
    from interleave_test import _scheduler

    # Nothing of this file may run in between: it is traced, and its steps would be a part of the schedule.
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
    before = getattr(owner, name)  # whoever renames it in a later version is told so here
    setattr(owner, name, function)
    try:
        yield
    finally:
        setattr(owner, name, before)
