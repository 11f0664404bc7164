"""Turns: an attempt that ends and the job that its thread goes on with, in one transaction.

The threads of a worker come back at about the same time, and a transaction costs about the same for one of
them as for all. So whoever comes while a transaction is under way shares the next one. What is decided for
each is decided by itself: one that lost its job is told so, one whose job somebody else holds just now waits
for that alone, and the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any, TypeAlias

from sqlalchemy import Connection, Select, bindparam, select

from cleveragents.core.errors import CleverAgentsError, UnknownJob
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.jobs.model.job import Job, Move, Outcome, claimed, ensure_owned, finished
from cleveragents.jobs.ports import Claim, Turn
from cleveragents.jobs.store.claimable import (
    Overtaken,
    Wanted,
    is_plain,
    most_urgent,
    most_urgent_few,
)
from cleveragents.jobs.store.rows import job_of, keep_moves
from cleveragents.storage.columns import microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.group_commit import GroupCommit
from cleveragents.storage.tables import jobs

__all__ = ["JobTurns", "Wish"]

_THESE = select(jobs).where(jobs.c.id.in_(bindparam("ids", expanding=True)))
_HELD = _THESE.with_for_update()
# guard: whoever shares a transaction with others waits for no row, or all would wait for whoever holds one
_UNHELD = _THESE.with_for_update(skip_locked=True)

_Answer: TypeAlias = Turn | CleverAgentsError | None


@dataclass(frozen=True, slots=True)
class Wish:
    """An end of an attempt, and what is wanted next."""

    job_id: str
    fence: int
    outcome: Outcome
    claim: Claim
    now: datetime


class JobTurns:
    """Runs turns for the threads of this process, several in one transaction.

    Thread safety:
        Owner: the job store; any thread may run a turn.
        Lock: none of its own; `GroupCommit` has one thread at a time write for all who wait.
        Guarantee: an end and the claim that follows it are kept together or not at all; nobody gets a job
            whose own attempt did not end; each gets one job at most.
    Cancel safety: as `GroupCommit`; a job that was claimed for who is gone falls silent and is reclaimed.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers
        self._group: GroupCommit[Wish, _Answer] = GroupCommit(self._commit, location=database.location)

    def run(self, wish: Wish) -> Turn:
        """`StaleFence`, `UnknownJob`, and what a write raises."""
        answer = self._group.run(wish)
        if answer is None:
            (answer,) = self._commit([wish], _HELD)
        assert answer is not None
        if isinstance(answer, CleverAgentsError):
            raise answer
        return answer

    def _commit(self, wishes: Sequence[Wish], look: Select[Any] = _UNHELD) -> Sequence[_Answer]:
        """None for whom the look did not find, be it that somebody holds its job or that there is none."""
        try:
            return self._database.write(lambda connection: self._write(connection, wishes, look))
        except Overtaken:  # the ends need not wait for that: whoever has a free slot looks again by itself
            return self._database.write(
                lambda connection: self._write(connection, wishes, look, claiming=False)
            )

    def _write(
        self, connection: Connection, wishes: Sequence[Wish], look: Select[Any], *, claiming: bool = True
    ) -> Sequence[_Answer]:
        ends = _ends(connection, wishes, look)
        # Whoever wants something else than the first one ends with it, and looks by itself.
        going_on = [
            number
            for number, end in enumerate(ends)
            if claiming and isinstance(end, Move) and wishes[number].claim == wishes[0].claim
        ]
        unkept = [end for end in ends if isinstance(end, Move)]
        claims: Sequence[Move] = ()
        if going_on:
            claims = self._claims(connection, [wishes[number] for number in going_on], unkept)
        keep_moves(connection, [*unkept, *claims], self._identifiers)
        following = {number: move.job for number, move in zip(going_on, claims, strict=False)}
        return [_answer(end, following.get(number)) for number, end in enumerate(ends)]

    def _claims(self, connection: Connection, wishes: Sequence[Wish], unkept: list[Move]) -> Sequence[Move]:
        """The most urgent jobs, one for each at most. One that takes up a counted place is claimed by itself,
        after the places of what has ended are given back: then nothing is left `unkept`."""
        claim = wishes[0].claim
        now = max(wish.now for wish in wishes)
        wanted = Wanted(tuple(sorted(claim.kinds)), microseconds(now), tuple(claim.queues))
        rows = most_urgent_few(connection, wanted, len(wishes))
        plain = list(takewhile(is_plain, rows))
        if rows and not plain:
            keep_moves(connection, unkept, self._identifiers)
            unkept.clear()
            counted = most_urgent(connection, wanted)
            plain = [] if counted is None else [counted]
        return [claimed(job_of(row), claim.worker, now) for row in plain]


def _ends(
    connection: Connection, wishes: Sequence[Wish], look: Select[Any]
) -> list[Move | CleverAgentsError | None]:
    rows = connection.execute(look, {"ids": [wish.job_id for wish in wishes]}).mappings()
    held = {row["id"]: job_of(row) for row in rows}
    return [_end(held, wish, look is _HELD) for wish in wishes]


def _end(held: dict[str, Job], wish: Wish, waited: bool) -> Move | CleverAgentsError | None:
    job = held.get(wish.job_id)
    if job is None:
        return UnknownJob(wish.job_id) if waited else None
    try:
        ensure_owned(job, wish.fence)
        move = finished(job, wish.outcome, wish.now)
    except CleverAgentsError as error:
        return error
    held[job.id] = move.job  # guard: whoever ends it once more in the same transaction comes too late
    return move


def _answer(end: Move | CleverAgentsError | None, following: Job | None) -> _Answer:
    return Turn(end.job, following) if isinstance(end, Move) else end
