"""Checks: commands whose exit code says whether a result is good enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

__all__ = ["REVIEW", "Check", "CheckRun", "CheckVerdict", "in_a_line"]

REVIEW = "review"
"""The name under which the reviewer's verdict is kept among the checks."""

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

    @property
    def is_review(self) -> bool:
        """Whether a reviewer said it, whose actor is the command."""
        return self.name == REVIEW and not self.required

    def is_check_of(self, tree: str) -> bool:
        """Whether a command said it of that tree. A reviewer is none, though a command be spelt like it."""
        return self.tree == tree and not self.is_review


def in_a_line(details: str) -> str:
    """How a run that did not pass ended, and the last line that it printed, which mostly says why."""
    how, _, printed = details.strip().partition("\n")
    last = printed.strip().rpartition("\n")[2].strip()
    if not last:
        return how
    return f"{how}: {last}" if len(last) <= _LONGEST_LINE else f"{how}: {last[:_LONGEST_LINE]}…"
