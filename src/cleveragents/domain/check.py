"""Checks: commands whose exit code says whether a result is good enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

__all__ = ["Check", "CheckRun", "CheckVerdict", "in_a_line"]

_LONGEST_LINE = 200


class CheckVerdict(str, Enum):
    """What came of a check. Only PASSED is a pass; one that did not run, or on the wrong files, is not."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Check:
    """A command, through the shell, in the sandbox's root. Required ones must pass before an apply."""

    name: str
    command: str
    required: bool = True
    timeout_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class CheckRun:
    """One run of a check on one tree."""

    plan_id: str
    name: str
    command: str
    required: bool
    verdict: CheckVerdict
    details: str
    tree: str
    ended_at: datetime
    seconds: float | None = field(default=None, compare=False)
    """How long it took, for who hears of it at once; it is not kept."""


def in_a_line(details: str) -> str:
    """How a run that did not pass ended, and the last line that it printed, which mostly says why."""
    how, _, printed = details.strip().partition("\n")
    last = printed.strip().rpartition("\n")[2].strip()
    if not last:
        return how
    return f"{how}: {last}" if len(last) <= _LONGEST_LINE else f"{how}: {last[:_LONGEST_LINE]}…"
