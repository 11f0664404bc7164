"""When the calls of a tree of plans ran: tools' and models', of every plan of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

__all__ = ["CallTimes", "Run", "TreeCalls"]


@dataclass(frozen=True, slots=True)
class Run:
    """The job that works on a plan now: it was to be had from `since` on, and `seen` at work last."""

    since: datetime
    seen: datetime


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One call. Of one that asked for leave first, `ran_seconds` says how long it ran after that; one without
    an end is under way, or was interrupted: its plan's `run` tells, if there is one."""

    began: datetime
    ended: datetime | None = None
    asked: bool = False
    ran_seconds: float = 0.0
    run: Run | None = None


class TreeCalls(Protocol):
    """Reads the calls of all plans of a tree at one moment."""

    def of_tree(self, root_id: str) -> Sequence[CallTimes]:
        """In no order. Left out is what nobody knows the end of: calls that were lost with their worker."""
        ...
