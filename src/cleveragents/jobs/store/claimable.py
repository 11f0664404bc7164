"""The next job to claim: the most urgent of those that may run now.

A job has a *place* under a limit if fewer jobs run than the limit allows. A job may start if it has a place
among the jobs of its kind and under each of its shared limits. The usual query is one statement. Running jobs
are counted only if it finds a job with limits; if that job has no place, a second query skips the jobs that
must wait. So neither a full kind nor a full shared limit delays other jobs, however many are queued.

A handoff combines, in one transaction, the end of an attempt and the claim of the next job for its thread.
The threads of a worker often finish at about the same time, and one transaction for all of them costs about
as much as for one. So threads that arrive during a transaction share the next transaction. Each handoff is
decided separately: a thread that lost its job gets an error, a thread whose job is locked by another
transaction waits alone, and the others continue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import takewhile
from typing import Any, TypeAlias

from msgspec import Struct
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

from cleveragents.core.errors import CleverAgentsError, UnknownJob
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.jobs.model.job import AttemptOutcome, Job, Move, claimed, ensure_owned, finished
from cleveragents.jobs.ports import JobClaim, JobHandoff
from cleveragents.jobs.store.rows import hold_in_order, job_of, keep_moves, lanes_in
from cleveragents.storage.columns import microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.database_errors import is_held
from cleveragents.storage.group_commit import GroupCommit
from cleveragents.storage.service_tables import job_lanes
from cleveragents.storage.tables import jobs

__all__ = [
    "ClaimFilter",
    "HandoffRequest",
    "JobHandoffs",
    "LostRace",
    "SlotsLocked",
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
# An expression instead of the column: otherwise a planner may start with all jobs that were ever in a
# shared limit, instead of the few that run.
_LANE = (_taken.c.lane + "").label("lane")
_PLACES_TAKEN = (
    select(_LANE, func.count().label("running"))
    .select_from(_at_work.join(_taken, _taken.c.job_id == _at_work.c.id))
    .where(_at_work.c.state == literal_column("'running'"))
    .group_by(_LANE)
)
_TAKEN_IN = _PLACES_TAKEN.where(_LANE.in_(bindparam("lanes", expanding=True)))

_THESE = select(jobs).where(jobs.c.id.in_(bindparam("ids", expanding=True)))
_HELD = _THESE.with_for_update()
# guard: a shared transaction waits for no row, or all its callers would wait for the one who holds it
_UNHELD = _THESE.with_for_update(skip_locked=True)
_Answer: TypeAlias = JobHandoff | CleverAgentsError | None


class LostRace(Exception):
    """Another transaction has just taken the last place: query again, in a new transaction."""


class SlotsLocked(LostRace):
    """Another transaction holds the locks of the limits, perhaps for long, because its process was stopped.

    The caller queries again later instead of waiting for the locks.
    """


class ClaimFilter(Struct, frozen=True):
    """The jobs that a claim accepts, due at `now`.

    These are private jobs of `kinds`, and jobs of the shared queues whose kind is one of `kinds`, or one of
    `kinds` followed by a colon and an id.
    """

    kinds: tuple[str, ...]
    now: int
    queues: tuple[str, ...] = ()

    @property
    def parameters(self) -> dict[str, object]:
        given: dict[str, object] = {"kinds": self.kinds, "now": self.now}
        if self.queues:
            given["queues"] = self.queues
        return given


class _Looks(Struct, frozen=True):
    """Two queries: whether any job can be claimed, and which job to claim."""

    any: Select[Any]
    most_urgent: Select[Any]


def any_claimable(connection: Connection, wanted: ClaimFilter) -> bool:
    """Return whether `most_urgent` would find a job. Takes no locks."""
    return _found(connection, wanted, held=False) is not None


def most_urgent(connection: Connection, wanted: ClaimFilter) -> RowMapping | None:
    """Return the job to claim. The job and the locks of its limits are held until the transaction ends.

    Raises `LostRace` if a place was lost while waiting for other claims of the same kind or shared limits.
    """
    row = _found(connection, wanted, held=True)
    if row is not None and not is_plain(row):
        _ensure_kept(connection, row)
    return row


def most_urgent_few(connection: Connection, wanted: ClaimFilter, most: int) -> Sequence[RowMapping]:
    """Return up to `most` jobs by urgency, locked, without a check of their limits.

    The caller claims only the jobs before the first that has limits: the locks of limits may be taken for
    only one job per transaction, or two transactions could deadlock.
    """
    few = _few(connection.dialect.name, bool(wanted.queues), most)
    return connection.execute(few, wanted.parameters).mappings().all()


def is_plain(row: RowMapping) -> bool:
    """Return whether the job has no limits."""
    return row["at_most"] is None and row["lanes"] is None


def has_places(connection: Connection, row: RowMapping) -> bool:
    """Return whether the limits of a locked job let it run now; if so, their locks are held."""
    bound = row["at_most"]
    if (
        bound is not None and _running(connection, row["kind"]) >= bound
    ):  # guard: the same limit as for all claims
        return False
    if _lanes_are_full(connection, row):  # guard: the same limit as for all claims
        return False
    _ensure_kept(connection, row)
    return True


def _found(connection: Connection, wanted: ClaimFilter, *, held: bool) -> RowMapping | None:
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
        if running is not None and running >= row["at_most"]:  # guard: no more of a kind run than the limit
            full[row["kind"]] = running
            continue
        if _lanes_are_full(connection, row):  # guard: no more run than a shared limit
            past_full_lanes = True
            continue
        return row


def _ensure_kept(connection: Connection, row: RowMapping) -> None:
    """Serialize claims by kind and by shared limit, so that no two transactions take the same free place.

    There is no deadlock, because all transactions take the locks in the same order, and a transaction that
    lost a race ends.
    """
    if connection.dialect.name != "postgresql":
        return
    names = [f"lane {lane.name}" for lane in lanes_in(row)]
    if row["at_most"] is not None:
        names.append(f"kind {row['kind']}")
    try:
        hold_in_order(connection, names)  # guard: two cannot take the last place
    except DBAPIError as error:
        if is_held(error):  # guard: ending a job must not wait for the next claim
            raise SlotsLocked from error
        raise
    bound = row["at_most"]
    # guard: counted again, now that no other transaction can claim one of the kind
    if bound is not None and _running(connection, row["kind"]) >= bound:
        raise LostRace
    if _lanes_are_full(
        connection, row
    ):  # guard: counted again, now that no other transaction can claim one of them
        raise LostRace


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
    # A literal: a planner that does not know how small it is would sort all waiting jobs.
    number = literal_column(str(most), Integer)
    return _looks(dialect, shared, past_full_lanes=False).most_urgent.limit(number)


def _has_places() -> ColumnElement[bool]:
    """Return the condition that no shared limit of the job is reached."""
    busy = _PLACES_TAKEN.cte("busy")
    full = (
        select(job_lanes.c.lane)
        .join(busy, busy.c.lane == job_lanes.c.lane + "")  # as above: the query plan begins with the job
        .where(job_lanes.c.job_id == jobs.c.id, job_lanes.c.at_most <= busy.c.running)
    )
    return or_(jobs.c.lanes.is_(None), ~exists(full.correlate(jobs)))


def _past(statement: Select[Any], full: Mapping[str, int]) -> Select[Any]:
    if not full:  # unchanged, so that SQLAlchemy finds the compiled statement without inspecting it
        return statement
    return statement.where(*(_may_run(kind, running) for kind, running in full.items()))


def _may_run(kind: str, running: int) -> ColumnElement[bool]:
    return or_(jobs.c.kind != kind, jobs.c.at_most.is_(None), jobs.c.at_most > running)


class HandoffRequest(Struct, frozen=True):
    """The outcome of an attempt to store, and the claim to make in the same transaction."""

    job_id: str
    fence: int
    outcome: AttemptOutcome
    claim: JobClaim
    now: datetime


class JobHandoffs:
    """Runs handoffs for the threads of this process, several in one transaction.

    Thread safety:
        Owner: the job store; any thread may run a handoff.
        Lock: none of its own; `GroupCommit` lets one thread at a time write for all that wait.
        Guarantee: an end and the claim that follows it are stored together or not at all; no thread gets a
            job if its own attempt did not end; each gets one job at most.
    Cancel safety: as `GroupCommit`; a job claimed for a thread that is gone gets no heartbeats and is
        reclaimed.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers
        self._group: GroupCommit[HandoffRequest, _Answer] = GroupCommit(
            self._commit, location=database.location
        )

    def run(self, handoff: HandoffRequest) -> JobHandoff:
        """Run one handoff. Raises `StaleFence`, `UnknownJob`, or an error of the write."""
        answer = self._group.run(handoff)
        if answer is None:
            (answer,) = self._commit([handoff], _HELD)
        assert answer is not None
        if isinstance(answer, CleverAgentsError):
            raise answer
        return answer

    def _commit(self, handoffs: Sequence[HandoffRequest], look: Select[Any] = _UNHELD) -> Sequence[_Answer]:
        """Return the results of a batch; None for handoffs whose job is locked or does not exist."""
        try:
            return self._database.write(lambda connection: self._write(connection, handoffs, look))
        except LostRace:  # the ends need not wait for that: a free slot queries again by itself
            return self._database.write(
                lambda connection: self._write(connection, handoffs, look, claiming=False)
            )

    def _write(
        self,
        connection: Connection,
        handoffs: Sequence[HandoffRequest],
        look: Select[Any],
        *,
        claiming: bool = True,
    ) -> Sequence[_Answer]:
        ends = _ends(connection, handoffs, look)
        # A turn with a different claim than the first one ends here, and claims by itself.
        going_on = [
            number
            for number, end in enumerate(ends)
            if claiming and isinstance(end, Move) and handoffs[number].claim == handoffs[0].claim
        ]
        unkept = [end for end in ends if isinstance(end, Move)]
        claims: Sequence[Move] = ()
        if going_on:
            claims = self._claims(connection, [handoffs[number] for number in going_on], unkept)
        keep_moves(connection, [*unkept, *claims], self._identifiers)
        following = {number: move.job for number, move in zip(going_on, claims, strict=False)}
        return [_answer(end, following.get(number)) for number, end in enumerate(ends)]

    def _claims(
        self, connection: Connection, handoffs: Sequence[HandoffRequest], unkept: list[Move]
    ) -> Sequence[Move]:
        """Return the most urgent jobs, at most one for each handoff.

        A job with limits is claimed alone, after the moves in `unkept` are stored, so that ended jobs no
        longer count; `unkept` is then empty.
        """
        claim = handoffs[0].claim
        now = max(handoff.now for handoff in handoffs)
        wanted = ClaimFilter(tuple(sorted(claim.kinds)), microseconds(now), tuple(claim.queues))
        rows = most_urgent_few(connection, wanted, len(handoffs))
        plain = list(takewhile(is_plain, rows))
        if rows and not plain:
            keep_moves(connection, unkept, self._identifiers)
            unkept.clear()
            counted = most_urgent(connection, wanted)
            plain = [] if counted is None else [counted]
        return [claimed(job_of(row), claim.worker, now) for row in plain]


def _ends(
    connection: Connection, handoffs: Sequence[HandoffRequest], look: Select[Any]
) -> list[Move | CleverAgentsError | None]:
    rows = connection.execute(look, {"ids": [handoff.job_id for handoff in handoffs]}).mappings()
    held = {row["id"]: job_of(row) for row in rows}
    return [_end(held, handoff, look is _HELD) for handoff in handoffs]


def _end(held: dict[str, Job], handoff: HandoffRequest, waited: bool) -> Move | CleverAgentsError | None:
    job = held.get(handoff.job_id)
    if job is None:
        return UnknownJob(handoff.job_id) if waited else None
    try:
        ensure_owned(job, handoff.fence)
        move = finished(job, handoff.outcome, handoff.now)
    except CleverAgentsError as error:
        return error
    held[job.id] = move.job  # guard: a second end of it in the same transaction comes too late
    return move


def _answer(end: Move | CleverAgentsError | None, following: Job | None) -> _Answer:
    return JobHandoff(end.job, following) if isinstance(end, Move) else end
