"""What plans print while they run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from cleveragents.api.wording import timestamp
from cleveragents.plans.store.sql_plan_output import SqlPlanOutput
from cleveragents.server.access import ReadPlan
from cleveragents.server.listing import Limit
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["plans"])


class PieceModel(BaseModel):
    """Some of what a plan printed."""

    plan_id: str = Field(examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"])
    number: int = Field(description="counts from 1 for each plan", examples=[12])
    kind: str = Field(
        description="progress (lines for people), output (of commands), model (what actors say), "
        "node (JSON: which `actor` is at which `node`; its `event`, if any, is `thinking` or `tool_done`)",
        examples=["output"],
    )
    text: str = Field(examples=["12 passed\n"])
    time: str = Field(examples=["2026-01-01T12:00:00Z"])


class OutputListing(BaseModel):
    """A piece of a plan's output, of which the oldest may be gone."""

    items: list[PieceModel]
    next: int | None = Field(description="where to go on, as `after`; null at the end")


@router.get("/plans/{plan_id}/output", operation_id="getPlanOutput")
def read_output(
    plan: ReadPlan,
    here: Here,
    limit: Limit = 500,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="only pieces after this number")] = 0,
) -> OutputListing:
    """What the plan printed after a number, masked; `/events/stream?output=…` has it live."""
    pieces = SqlPlanOutput(here.container.database).read(plan.id, after=after, limit=limit)
    items = [
        PieceModel(
            plan_id=piece.plan_id,
            number=piece.number,
            kind=piece.kind,
            text=piece.text,
            time=timestamp(piece.written_at),
        )
        for piece in pieces
    ]
    return OutputListing(items=items, next=items[-1].number if len(items) == limit else None)
