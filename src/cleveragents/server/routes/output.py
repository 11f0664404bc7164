"""What plans print while they run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from cleveragents.api.plans.views import OutputView
from cleveragents.server.access import PlanViewer
from cleveragents.server.listing import Limit
from cleveragents.server.plan_models import PlanId

__all__ = ["router"]

router = APIRouter(tags=["plans"])


class OutputListing(BaseModel):
    """A piece of a plan's output, of which the oldest may be gone."""

    items: tuple[OutputView, ...]
    next: int | None = Field(description="where to go on, as `after`; null at the end")


@router.get("/plans/{plan_id}/output", operation_id="getPlanOutput")
def read_output(
    plan_id: PlanId,
    client: PlanViewer,
    limit: Limit = 500,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="only pieces after this number")] = 0,
) -> OutputListing:
    """What the plan printed after a number, masked; `/events/stream?output=…` has it live."""
    items = client.plans.output(plan_id, after=after, limit=limit)
    return OutputListing(items=items, next=items[-1].number if len(items) == limit else None)
