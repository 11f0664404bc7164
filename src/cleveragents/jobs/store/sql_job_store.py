"""The job table and the worker registry in a database: each move is one transaction with its event.

A transaction that moves a job locks it: SQLite has only one write transaction at a time; PostgreSQL locks the
row, and a claim skips locked rows. So no decision is based on stale data. `claimable` selects the next
job to claim.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate

from cleveragents.core.clock import Clock
from cleveragents.core.errors import QueueFull, StoreBusy, UnknownJob
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource, WorkerIdentity
from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.model.job import (
    AttemptOutcome,
    Job,
    JobState,
    Move,
    NewJob,
    claimed,
    ensure_owned,
    ensure_same,
    finished,
    reclaimed,
    requested_cancel,
    submitted,
)
from cleveragents.jobs.ports import Heartbeat, JobClaim, JobHandoff, WorkerRecord
from cleveragents.jobs.store.claimable import (
    ClaimFilter,
    HandoffRequest,
    JobHandoffs,
    LostRace,
    SlotsLocked,
    any_claimable,
    has_places,
    most_urgent,
)
from cleveragents.jobs.store.rows import event_of, hold_in_order, job_of, keep_moves, lane_rows_of, row_of
from cleveragents.storage.columns import kept_text, microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.rows import record_in
from cleveragents.storage.rows import row_of as rows_row_of
from cleveragents.storage.service_tables import job_lanes, workers
from cleveragents.storage.tables import jobs

__all__ = ["GONE", "SqlJobStore", "SqlWorkerRegistry"]


_BY_ID = select(jobs).where(jobs.c.id == bindparam("job_id"))
_HELD_BY_ID = _BY_ID.with_for_update()
_UNHELD_BY_ID = _BY_ID.with_for_update(skip_locked=True)
_READ_BEAT = select(jobs.c.id, jobs.c.beat, jobs.c.cancel_reason)
_BY_KEY = select(jobs).where(jobs.c.key == bindparam("job_key"))
_WAITING_IN_QUEUE = (
    select(jobs.c.number)
    .where(jobs.c.state == literal_column("'queued'"), jobs.c.queue == bindparam("queue"))
    .limit(bindparam("most"))
)
_COUNT_WAITING = select(func.count()).select_from(_WAITING_IN_QUEUE.subquery())

GONE = "gone"
"""The last state in a worker's reports."""
_REMEMBERED = timedelta(days=1)


class SqlJobStore:
    """`JobStore` on a `Database`. Any thread may share it: its only own state is a hint."""

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers
        self._turns = JobHandoffs(database, identifiers)
        # The second of two concurrent submissions finds the key of the first, and inserts nothing.
        new = insert_into(jobs, database.dialect).on_conflict_do_nothing(index_elements=["key"])
        self._submit = new.returning(jobs.c.number)
        self._found = False

    def submit(self, new: NewJob, *, now: datetime, queue_bound: int | None = None) -> Job:
        move = submitted(new, self._identifiers.new(), now)
        lanes = lane_rows_of(move.job)

        def unit(connection: Connection) -> Job:
            if queue_bound is not None:
                _take_turns(connection, new.queue)
            if connection.execute(self._submit, row_of(move.job)).first() is not None:
                if queue_bound is not None:
                    _ensure_room(connection, new.queue, queue_bound)
                if lanes:
                    connection.execute(insert(job_lanes), lanes)
                append_to_outbox(connection, event_of(move, self._identifiers))
                return move.job
            first = job_of(connection.execute(_BY_KEY, {"job_key": new.key}).mappings().one())
            ensure_same(first, new)
            return first

        return self._database.write(unit)

    def get(self, job_id: str) -> Job:
        with self._database.read() as connection:
            row = connection.execute(_BY_ID, {"job_id": job_id}).mappings().first()
        if row is None:
            raise UnknownJob(job_id)
        return job_of(row)

    def list(
        self,
        *,
        states: Collection[JobState] = (),
        kind: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Sequence[Job]:
        query = select(jobs).order_by(jobs.c.id).limit(limit)
        if states:
            query = query.where(jobs.c.state.in_([state.value for state in states]))
        if kind is not None:
            query = query.where(jobs.c.kind == kind)
        if after is not None:
            query = query.where(jobs.c.id > after)
        with self._database.read() as connection:
            rows = connection.execute(query).mappings().all()
        return [job_of(row) for row in rows]

    def claim(
        self, worker: WorkerIdentity, kinds: Collection[str], *, now: datetime, queues: Collection[str] = ()
    ) -> Job | None:
        wanted = ClaimFilter(tuple(sorted(kinds)), microseconds(now), tuple(queues))

        def unit(connection: Connection) -> Job | None:
            row = most_urgent(connection, wanted)
            if row is None:
                return None
            return self._keep(connection, claimed(job_of(row), worker, now))

        # Idle workers poll all day, and SQLite has a single write lock: they read first.
        if not self._found and not self._any_claimable(wanted):
            return None
        while True:
            try:
                job = self._database.write(unit)
            except SlotsLocked:
                return None
            except LostRace:  # another worker got a job: this cannot repeat forever
                continue
            self._found = job is not None
            return job

    def claim_this(self, job_id: str, worker: WorkerIdentity, *, now: datetime) -> Job | None:
        """Claim a specific job for `worker`.

        For a worker that an external engine told to run this job. Returns None if the job is not due, has no
        place under its limits, has another owner, or has ended. Raises `UnknownJob`.
        """

        def unit(connection: Connection) -> Job | None:
            row = connection.execute(_HELD_BY_ID, {"job_id": job_id}).mappings().first()
            if row is None:
                raise UnknownJob(job_id)
            job = job_of(row)
            if job.state is not JobState.QUEUED or job.not_before > now or not has_places(connection, row):
                return None
            return self._keep(connection, claimed(job, worker, now))

        while True:
            try:
                return self._database.write(unit)
            except SlotsLocked:
                return None
            except LostRace:  # as in `claim`
                continue

    def heartbeats(self, held: Mapping[str, int], *, now: datetime) -> Mapping[str, Heartbeat]:
        beat = _beat(held, now)

        def unit(connection: Connection) -> dict[str, Heartbeat]:
            heard = {row.id: Heartbeat(row.beat, row.cancel_reason) for row in connection.execute(beat)}
            missed = {job_id: fence for job_id, fence in held.items() if job_id not in heard}
            if missed:
                left = connection.execute(_READ_BEAT.where(_is_held(missed)))
                heard |= {row.id: Heartbeat(row.beat, row.cancel_reason, heard=False) for row in left}
            return heard

        return self._database.write(unit)

    def cancels(self, held: Mapping[str, int]) -> Mapping[str, str]:
        asked = select(jobs.c.id, jobs.c.cancel_reason).where(
            _is_held(held), jobs.c.cancel_reason.is_not(None)
        )
        with self._database.read() as connection:
            rows = connection.execute(asked).all()
        return {row.id: row.cancel_reason for row in rows}

    def finish(self, job_id: str, fence: int, outcome: AttemptOutcome, *, now: datetime) -> Job:
        def decide(job: Job) -> Move:
            ensure_owned(job, fence)
            return finished(job, outcome, now)

        return self._move(job_id, decide)

    def finish_and_claim(
        self, job_id: str, fence: int, outcome: AttemptOutcome, claim: JobClaim, *, now: datetime
    ) -> JobHandoff:
        turn = self._turns.run(HandoffRequest(job_id, fence, outcome, claim, now))
        self._found = turn.following is not None
        return turn

    def request_cancel(self, job_id: str, reason: str, *, now: datetime) -> Job:
        return self._move(job_id, lambda job: requested_cancel(job, reason, now))

    def reclaim(self, job_id: str, fence: int, beat: int, *, error: str, now: datetime) -> Job:
        def decide(job: Job) -> Move:
            ensure_owned(job, fence, beat)
            return reclaimed(job, error, now)

        # guard: a sweep examines many jobs, and waits for no locked one
        return self._move(job_id, decide, by_id=_UNHELD_BY_ID)

    def _any_claimable(self, wanted: ClaimFilter) -> bool:
        with self._database.read() as connection:
            return any_claimable(connection, wanted)

    def _move(
        self,
        job_id: str,
        decide: Callable[[Job], Move | None],
        *,
        by_id: Select[Any] = _HELD_BY_ID,
    ) -> Job:
        def unit(connection: Connection) -> Job:
            job = _held(connection, job_id, by_id)
            move = decide(job)
            return job if move is None else self._keep(connection, move)

        return self._database.write(unit)

    def _keep(self, connection: Connection, move: Move) -> Job:
        keep_moves(connection, [move], self._identifiers)
        return move.job


def _held(connection: Connection, job_id: str, by_id: Select[Any]) -> Job:
    row = connection.execute(by_id, {"job_id": job_id}).mappings().first()
    if row is not None:
        return job_of(row)
    if by_id is _UNHELD_BY_ID and connection.execute(_BY_ID, {"job_id": job_id}).first() is not None:
        raise StoreBusy(0.0)
    raise UnknownJob(job_id)


def _beat(held: Mapping[str, int], now: datetime) -> ReturningUpdate[tuple[str, int, str | None]]:
    """Return the statement that increases the beat of the jobs that no other transaction is moving.

    Writes of a plan and heartbeats of its job do not wait for each other: such a write only checks that the
    job keeps its owner, and a heartbeat does not change the owner.
    """
    ours = select(jobs.c.id).where(_is_held(held))
    # guard: one locked job, for however long, must not cost the others their leases
    ours = ours.with_for_update(key_share=True, skip_locked=True)
    return (
        update(jobs)
        .where(jobs.c.id.in_(ours))
        .values(beat=jobs.c.beat + 1, updated_at=microseconds(now))
        .returning(jobs.c.id, jobs.c.beat, jobs.c.cancel_reason)
    )


def _is_held(held: Mapping[str, int]) -> ColumnElement[bool]:
    """Return the condition that a job is running and still has its fence in `held`."""
    pairs = tuple_(jobs.c.id, jobs.c.fence).in_(list(held.items()))
    return and_(jobs.c.state == JobState.RUNNING.value, pairs)


def _take_turns(connection: Connection, queue: str) -> None:
    """Serialize submissions to a queue, so that two transactions cannot both take the last free place."""
    if connection.dialect.name == "postgresql":
        hold_in_order(connection, [f"queue {queue}"])  # guard: counted by one at a time


def _ensure_room(connection: Connection, queue: str, bound: int) -> None:
    """Raise `QueueFull` if the job just inserted exceeds the limit."""
    waiting = connection.execute(_COUNT_WAITING, {"queue": queue, "most": bound + 1}).scalar_one()
    if waiting > bound:  # guard: a bounded queue
        raise QueueFull(f"the queue {queue!r}", bound)


class SqlWorkerRegistry:
    """`WorkerRegistry` on a `Database`. Any thread may share it: it has no state besides the database."""

    def __init__(self, database: Database, identifiers: IdentifierSource, clock: Clock) -> None:
        self._database = database
        self._identifiers = identifiers
        self._clock = clock

    def report(self, worker: WorkerRecord) -> None:
        said = _storable(worker)
        row = rows_row_of(said)

        def unit(connection: Connection) -> None:
            mine = workers.c.id == said.id
            held = connection.execute(select(workers.c.state).where(mine).with_for_update()).scalar()
            if held is None:
                connection.execute(workers.insert(), row)
                append_to_outbox(connection, self._event(EventType.WORKER_JOINED, said))
                _forget(connection, said)
            elif held == GONE:  # guard: a late report does not bring the worker back
                return
            else:
                connection.execute(update(workers).where(mine).values(row))
            if said.state == GONE:
                append_to_outbox(connection, self._event(EventType.WORKER_LEFT, said))

        self._database.write(unit)

    def list(self) -> Sequence[WorkerRecord]:
        since = microseconds(self._clock.now() - _REMEMBERED)
        query = select(workers).where(workers.c.seen_at >= since).order_by(workers.c.started_at, workers.c.id)
        with self._database.read() as connection:
            found = [record_in(WorkerRecord, row) for row in connection.execute(query).mappings()]
        return found[::-1]

    def _event(self, kind: EventType, worker: WorkerRecord) -> DomainEvent:
        facts: dict[str, JsonValue] = {"name": worker.name, "host": worker.host, "pid": worker.pid}
        return DomainEvent(kind, worker.id, self._identifiers.new(), worker.seen_at, facts)


def _forget(connection: Connection, newcomer: WorkerRecord) -> None:
    """Delete workers not seen for long; each new worker does this, so there are never many."""
    long_ago = microseconds(newcomer.seen_at - _REMEMBERED)
    connection.execute(delete(workers).where(workers.c.seen_at < long_ago))


def _storable(worker: WorkerRecord) -> WorkerRecord:
    return replace(worker, name=kept_text(worker.name), host=kept_text(worker.host))
