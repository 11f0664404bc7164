"""Named places where a test may stop the world."""

from __future__ import annotations

from typing import Protocol

__all__ = ["FaultPoints", "NoFaults"]


class FaultPoints(Protocol):
    """Durable steps announce themselves here, before and after; production listens to none of it.

    Names are dotted: `job.finish.before`, `audit.head.after`. An implementation may return, raise, or
    end the process, so a step must leave the world right whichever it does.
    """

    def reach(self, name: str) -> None:
        """Called at the point `name`."""
        ...


class NoFaults:
    """What production passes: nothing ever happens at a fault point."""

    def reach(self, name: str) -> None:
        """Returns."""
