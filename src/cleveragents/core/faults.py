"""Named fault points, where a test may interrupt the program."""

from __future__ import annotations

from typing import Protocol

__all__ = ["FaultPoints", "NoFaults"]


class FaultPoints(Protocol):
    """A hook that is called before and after each durable step; in production it does nothing.

    Names are dotted: `job.finish.before`, `audit.head.after`. An implementation may return, raise, or end the
    process, so a step must leave a correct state in each case.
    """

    def reach(self, name: str) -> None:
        """Mark that the program has reached the fault point `name`."""
        ...


class NoFaults:
    """Fault points for production, which do nothing."""

    def reach(self, name: str) -> None:
        """Do nothing."""
