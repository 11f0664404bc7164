"""What kept a plan's commands from the rest of the machine."""

from __future__ import annotations

from enum import Enum

__all__ = ["Isolation", "weaker"]


class Isolation(str, Enum):
    """`bubblewrap`: commands see their sandbox and little else. `none`: they can do whatever the user can."""

    BUBBLEWRAP = "bubblewrap"
    NONE = "none"

    @staticmethod
    def of(isolates: bool) -> Isolation:
        """The isolation of a command runner that isolates, or does not."""
        return Isolation.BUBBLEWRAP if isolates else Isolation.NONE


def weaker(one: Isolation | None, other: Isolation | None) -> Isolation | None:
    """The isolation of a plan with runs under both; None where neither is known."""
    known = {isolation for isolation in (one, other) if isolation is not None}
    if Isolation.NONE in known:
        return Isolation.NONE
    return Isolation.BUBBLEWRAP if known else None
