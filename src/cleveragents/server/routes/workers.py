"""Routes of workers."""

from __future__ import annotations

from fastapi import APIRouter

from cleveragents.api.views import Page
from cleveragents.api.workers import WorkerView
from cleveragents.server.access import AnyClient
from cleveragents.server.listing import After, Limit

__all__ = ["router"]

router = APIRouter(tags=["jobs"])


@router.get("/workers", operation_id="listWorkers")
def list_workers(client: AnyClient, limit: Limit = 100, after: After = None) -> Page[WorkerView]:
    """Lists the workers of the last day, those that left among them."""
    return client.workers.list(limit=limit, after=after)
