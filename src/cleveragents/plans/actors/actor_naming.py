"""What the runs of a plan's actors are called: for good, unless a person took back what one of them did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.undoing import ROLLBACK, checkpoint_of

__all__ = ["current_name", "times_back"]


def current_name(part: str, calls: Sequence[ToolCall]) -> str:
    """The name of the run by now. One whose calls a rollback took back has ended as far as its checkpoints
    know, and would never make them again; so it is begun anew, as `part+1`, `part+2` and so on. One that was
    stopped by the only call that was taken back makes it again where it stands."""
    gone = [str(call.step) for call in calls if call.state is CallState.REVERTED and not call.stopped_its_run]
    for time in count():
        name = f"{part}+{time}" if time else part
        if not any(step.startswith(f"{name}.") for step in gone):  # guard: nothing of it was taken back
            break
    return name


def times_back(calls: Sequence[ToolCall]) -> int:
    """How often work was taken back; not where only a call that had stopped its run is made again."""
    work = [call.number for call in calls if call.step is not None and not call.stopped_its_run]
    return sum(
        any(checkpoint_of(back) <= number < back.number for number in work)
        for back in calls
        if back.tool == ROLLBACK
    )
