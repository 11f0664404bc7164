"""Which queued job is to be claimed next: the most urgent one of those that may run now.

A job with a bound may run while fewer than that many of its kind do; one in lanes, while each of them has a
place. The usual look costs one statement: only where it comes upon a job with a bound or lanes, those that
run are counted, and only where there is no place, it looks again, past the jobs which would have to wait. So
neither a full kind nor a full lane holds up anybody else, however many of its jobs are queued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    RowMapping,
    Select,
    Text,
    and_,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
)
from sqlalchemy.exc import DBAPIError

from cleveragents.jobs.store.rows import hold_in_order, lanes_in
from cleveragents.storage.database_errors import is_held
from cleveragents.storage.service_tables import job_lanes
from cleveragents.storage.tables import jobs

__all__ = [
    "Overtaken",
    "PlacesHeld",
    "Wanted",
    "any_claimable",
    "has_places",
    "is_plain",
    "most_urgent",
    "most_urgent_few",
]

# The literals let the planner see that the partial indexes answer this.
_QUEUED = jobs.c.state == literal_column("'queued'")
_DUE = jobs.c.not_before <= bindparam("now")
_OF_THESE_KINDS = jobs.c.kind.in_(bindparam("kinds", expanding=True))
_PRIVATE = and_(jobs.c.queue == literal_column("''"), _OF_THESE_KINDS)
_BEFORE_COLON: Mapping[str, ColumnElement[str]] = {
    "sqlite": func.substr(jobs.c.kind, 1, func.instr(jobs.c.kind + ":", ":") - 1, type_=Text),
    "postgresql": func.split_part(jobs.c.kind, ":", 1, type_=Text),
}
_RUNNING = (
    select(func.count())
    .select_from(jobs)
    .where(jobs.c.state == literal_column("'running'"), jobs.c.kind == bindparam("kind"))
)

_at_work = jobs.alias("at_work")
_taken = job_lanes.alias("taken")
# An expression instead of the column: no index tempts a planner to begin with all jobs that ever were in a
# lane, rather than with the few that run.
_LANE = (_taken.c.lane + "").label("lane")
_PLACES_TAKEN = (
    select(_LANE, func.count().label("running"))
    .select_from(_at_work.join(_taken, _taken.c.job_id == _at_work.c.id))
    .where(_at_work.c.state == literal_column("'running'"))
    .group_by(_LANE)
)
_TAKEN_IN = _PLACES_TAKEN.where(_LANE.in_(bindparam("lanes", expanding=True)))


class Overtaken(Exception):
    """Somebody else took the last place in this very moment: look again, in a new transaction."""


class PlacesHeld(Overtaken):
    """Somebody else keeps the places and does not go on, as who was stopped in the middle: look again later,
    for who waits for it here has others to see to."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Jobs to be claimed: due at `now`, private ones of these kinds, and those of the shared queues whose
    kind is one of these or begins with one and a colon."""

    kinds: tuple[str, ...]
    now: int
    queues: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, object]:
        given: dict[str, object] = {"kinds": self.kinds, "now": self.now}
        if self.queues:
            given["queues"] = self.queues
        return given


@dataclass(frozen=True, slots=True)
class _Looks:
    """Statements: for any job there is, and for the one to be claimed."""

    any: Select[Any]
    most_urgent: Select[Any]


def any_claimable(connection: Connection, wanted: Wanted) -> bool:
    """Whether there is a job for `most_urgent` to find. Holds nothing."""
    return _found(connection, wanted, held=False) is not None


def most_urgent(connection: Connection, wanted: Wanted) -> RowMapping | None:
    """The job to be claimed, held until the end of the transaction; its places are kept for it as long.

    `Overtaken` when a place was lost while waiting for whoever claims jobs of the same kind or lanes.
    """
    row = _found(connection, wanted, held=True)
    if row is not None and not is_plain(row):
        _ensure_kept(connection, row)
    return row


def most_urgent_few(connection: Connection, wanted: Wanted, most: int) -> Sequence[RowMapping]:
    """So many at most, held, by urgency; no place is counted. Whoever claims them stops at the first that is
    not plain: locks of lanes are taken for one job in a transaction, or two would wait in a circle."""
    few = _few(connection.dialect.name, bool(wanted.queues), most)
    return connection.execute(few, wanted.parameters).mappings().all()


def is_plain(row: RowMapping) -> bool:
    """Whether the job takes up no place that is counted."""
    return row["at_most"] is None and row["lanes"] is None


def has_places(connection: Connection, row: RowMapping) -> bool:
    """Whether a job that is held may run now; then its places are kept for it as `most_urgent` keeps them."""
    bound = row["at_most"]
    if bound is not None and _running(connection, row["kind"]) >= bound:  # guard: as everybody else's claims
        return False
    if _lanes_are_full(connection, row):  # guard: as everybody else's claims
        return False
    _ensure_kept(connection, row)
    return True


def _found(connection: Connection, wanted: Wanted, *, held: bool) -> RowMapping | None:
    full: dict[str, int] = {}
    past_full_lanes = False
    parameters = wanted.parameters
    while True:
        looks = _looks(connection.dialect.name, bool(wanted.queues), past_full_lanes)
        statement = _past(looks.most_urgent if held else looks.any, full)
        row = connection.execute(statement, parameters).mappings().first()
        if row is None:
            return None
        running = None if row["at_most"] is None else _running(connection, row["kind"])
        if running is not None and running >= row["at_most"]:  # guard: no more of a kind run than the bound
            full[row["kind"]] = running
            continue
        if _lanes_are_full(connection, row):  # guard: no more in a lane run than the bound
            past_full_lanes = True
            continue
        return row


def _ensure_kept(connection: Connection, row: RowMapping) -> None:
    """Where transactions run beside each other, two could see the same place free: they take turns by kind
    and by lane.

    All take them in the same order, and who was overtaken ends: nobody waits in a circle.
    """
    if connection.dialect.name != "postgresql":
        return
    names = [f"lane {lane.name}" for lane in lanes_in(row)]
    if row["at_most"] is not None:
        names.append(f"kind {row['kind']}")
    try:
        hold_in_order(connection, names)  # guard: two cannot take the last place
    except DBAPIError as error:
        if is_held(error):  # guard: who ends a job need not wait for the next one
            raise PlacesHeld from error
        raise
    bound = row["at_most"]
    # guard: counted again, now that nobody else may claim one of the kind
    if bound is not None and _running(connection, row["kind"]) >= bound:
        raise Overtaken
    if _lanes_are_full(connection, row):  # guard: counted again, now that nobody else may claim one of them
        raise Overtaken


def _lanes_are_full(connection: Connection, row: RowMapping) -> bool:
    lanes = lanes_in(row)
    if not lanes:
        return False
    rows = connection.execute(_TAKEN_IN, {"lanes": [lane.name for lane in lanes]})
    taken = {row.lane: int(row.running) for row in rows}
    return any(taken.get(lane.name, 0) >= lane.at_most for lane in lanes)


def _running(connection: Connection, kind: str) -> int:
    return int(connection.execute(_RUNNING, {"kind": kind}).scalar_one())


@cache
def _looks(dialect: str, shared: bool, past_full_lanes: bool) -> _Looks:
    mine: ColumnElement[bool] = _PRIVATE
    if shared:
        of_these = or_(_OF_THESE_KINDS, _BEFORE_COLON[dialect].in_(bindparam("kinds", expanding=True)))
        mine = or_(_PRIVATE, and_(jobs.c.queue.in_(bindparam("queues", expanding=True)), of_these))
    due = [_QUEUED, mine, _DUE]
    if past_full_lanes:
        due.append(_has_places())
    ordered = select(jobs).where(*due).order_by(jobs.c.priority.desc(), jobs.c.number).limit(1)
    return _Looks(
        any=select(jobs.c.kind, jobs.c.at_most, jobs.c.lanes).where(*due).limit(1),
        most_urgent=ordered.with_for_update(skip_locked=True, of=jobs),
    )


@cache
def _few(dialect: str, shared: bool, most: int) -> Select[Any]:
    # A literal, because a planner that does not know how few they are would rather sort all that wait.
    number = literal_column(str(most), Integer)
    return _looks(dialect, shared, past_full_lanes=False).most_urgent.limit(number)


def _has_places() -> ColumnElement[bool]:
    """That no lane of the job is full."""
    busy = _PLACES_TAKEN.cte("busy")
    full = (
        select(job_lanes.c.lane)
        .join(busy, busy.c.lane == job_lanes.c.lane + "")  # so as above: it begins with the job
        .where(job_lanes.c.job_id == jobs.c.id, job_lanes.c.at_most <= busy.c.running)
    )
    return or_(jobs.c.lanes.is_(None), ~exists(full.correlate(jobs)))


def _past(statement: Select[Any], full: Mapping[str, int]) -> Select[Any]:
    if not full:  # as it is, a statement that was compiled once is known again without being looked through
        return statement
    return statement.where(*(_may_run(kind, running) for kind, running in full.items()))


def _may_run(kind: str, running: int) -> ColumnElement[bool]:
    return or_(jobs.c.kind != kind, jobs.c.at_most.is_(None), jobs.c.at_most > running)
