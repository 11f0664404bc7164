"""How much of its time a tree of plans has spent.

What counts is the time in which some call of some plan of the tree ran: plans that work at once spend it
together, and while all of them wait, for a person or for a place, none is spent. A call that is under way
counts until now, or whoever begins beside it would take the time that it is taking; if its worker is silent,
not much longer than to its last sign of life.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from cleveragents.plans.ports.plans import CallTimes

__all__ = ["seconds_of_tree"]

_SILENCE = timedelta(seconds=15)
"""As long as a worker may be silent before its peers take it for dead."""

_Span = tuple[datetime, datetime]


def seconds_of_tree(calls: Iterable[CallTimes], now: datetime) -> float:
    """The length of all the time in which at least one of the calls ran."""
    spans = sorted(span for call in calls if (span := _span_of(call, now)) is not None)
    total = timedelta()
    reached: datetime | None = None
    for began, ended in spans:
        start = began if reached is None else max(began, reached)
        if ended > start:  # guard: what was counted already is not counted again, or taken back
            total += ended - start
            reached = ended
    return total.total_seconds()


def _span_of(call: CallTimes, now: datetime) -> _Span | None:
    if call.ended is None:
        return _span_so_far(call, now)
    if call.asked:
        return call.ended - timedelta(seconds=call.ran_seconds), call.ended
    return call.began, call.ended


def _span_so_far(call: CallTimes, now: datetime) -> _Span | None:
    run = call.run
    if run is None:  # guard: nobody works on that plan
        return None
    if call.began < run.since:  # guard: an earlier attempt was interrupted in it
        return None
    return call.began, min(now, run.seen + _SILENCE)
