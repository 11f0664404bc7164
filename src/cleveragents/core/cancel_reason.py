"""Why a job is to end: because somebody wants that, or because what it is a part of stops for now.

Both come to a job as a reason. So that nobody's words are taken for a mere stop, those that begin like one
are put in quotes where they come in.
"""

from __future__ import annotations

__all__ = ["is_mere_stop", "mere_stop", "said_by_somebody"]

_MARK = "stopped, because "


def mere_stop(why: str) -> str:
    """The reason of a stop after which it can go on."""
    return f"{_MARK}{why}"


def is_mere_stop(reason: str | None) -> bool:
    """Whether nobody wants it cancelled: it can go on later."""
    return reason is not None and reason.startswith(_MARK)


def said_by_somebody(reason: str) -> str:
    """The reason as a person or another program gave it, which is never a mere stop."""
    return f'"{reason}"' if is_mere_stop(reason) else reason  # guard: nobody's words are taken for ours
