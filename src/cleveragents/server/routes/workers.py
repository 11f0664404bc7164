"""Workers: who runs jobs, on all machines."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cleveragents.api.workers import worker_account
from cleveragents.server.access import AnyUser
from cleveragents.server.accounts import account_as
from cleveragents.server.listing import After, Limit, Listing, piece_of
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["jobs"])


class WorkerAccount(BaseModel):
    """A worker as it last said it is."""

    id: str = Field(examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1D"])
    name: str = Field(examples=["worker-1"])
    host: str = Field(examples=["build-3"])
    pid: int = Field(examples=[4711])
    engine: str = Field(examples=["embedded"])
    queue: str = Field(examples=["plans"])
    concurrency: int = Field(description="how many jobs it runs at once", examples=[4])
    running: int = Field(description="how many it runs now", examples=[2])
    state: Literal["working", "idle", "draining", "gone", "lost"] = Field(
        description="idle: it has nothing to do; lost: its process is gone, or nothing was heard of it for a "
        "minute",
        examples=["working"],
    )
    started: str = Field(examples=["2026-11-15T12:00:00Z"])
    seen: str = Field(description="when it last said so", examples=["2026-11-15T12:03:00Z"])
    isolation: Literal["bubblewrap", "none"] | None = Field(
        description="what isolates the commands it runs; null if unknown", examples=["bubblewrap"]
    )


@router.get("/workers", operation_id="listWorkers")
def list_workers(
    here: Here, access: AnyUser, limit: Limit = 100, after: After = None
) -> Listing[WorkerAccount]:
    """Lists the workers of the last day, those that left among them."""
    container = here.container
    now = container.clock.now()
    known = [
        account_as(WorkerAccount, worker_account(worker, now=now, home=container.home))
        for worker in container.worker_registry.list()
    ]
    return piece_of(sorted(known, key=_id), _id, limit, after)


def _id(worker: WorkerAccount) -> str:
    return worker.id
