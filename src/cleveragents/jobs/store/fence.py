"""Whoever lost a job writes nothing more for it: asked in the transaction that writes."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, literal_column, select

from cleveragents.core.errors import StaleFence
from cleveragents.core.identifiers import Fence
from cleveragents.jobs.model.job import JobState
from cleveragents.storage.prepared_statement import prepared
from cleveragents.storage.tables import jobs

__all__ = ["RUNS", "ensure_owned"]

# Held until the transaction is over: nobody takes the job over meanwhile; its heartbeat goes on.
RUNS = (
    select(jobs.c.number)
    .where(
        jobs.c.id == bindparam("job_id"),
        jobs.c.fence == bindparam("token"),
        jobs.c.state == literal_column(f"'{JobState.RUNNING.value}'"),
    )
    .with_for_update(read=True, key_share=True)
)


def ensure_owned(connection: Connection, fence: Fence | None) -> None:
    """Returns while the job runs under that token, or where no fence is given. `StaleFence`."""
    if fence is None:
        return
    runs = prepared(RUNS, connection.dialect.name)
    held = runs.run(connection, {"job_id": fence.job_id, "token": fence.token}).first()
    if held is None:  # guard: a stale worker's writes are refused
        raise StaleFence(fence.job_id, fence.token)
