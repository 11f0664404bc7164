"""Moves of jobs as they are kept: the row after each, and the event that tells of it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, update

from cleveragents.core.event import DomainEvent
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.jobs.model.job_moves import Move
from cleveragents.jobs.store.rows import MUTABLE, changed_of
from cleveragents.storage.outbox import append_many_to_outbox
from cleveragents.storage.prepared_statement import prepared
from cleveragents.storage.tables import jobs

__all__ = ["event_of", "keep_moves"]

_MOVE = (
    update(jobs).where(jobs.c.id == bindparam("job_id")).values({name: bindparam(name) for name in MUTABLE})
)


def keep_moves(connection: Connection, moves: Sequence[Move], identifiers: IdentifierSource) -> None:
    """Writes them in the transaction under way, in their order. Whoever decided them holds the rows."""
    if not moves:
        return
    changes = [{"job_id": move.job.id, **changed_of(move.job)} for move in moves]
    prepared(_MOVE, connection.dialect.name).run_each(connection, changes)
    append_many_to_outbox(connection, [event_of(move, identifiers) for move in moves])


def event_of(move: Move, identifiers: IdentifierSource) -> DomainEvent:
    """What tells of the move, at the moment when it was made."""
    job = move.job
    return DomainEvent(move.event_type, job.id, identifiers.new(), job.updated_at, move.facts)
