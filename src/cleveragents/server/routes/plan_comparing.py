"""The route that compares two plans."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from cleveragents.api.plans.views import EXAMPLE_PLAN, ComparisonView
from cleveragents.server.access import PlanViewer
from cleveragents.server.plan_models import Paths, PlanId, Renames

__all__ = ["router"]

router = APIRouter(tags=["plans"])

_PATCH = "text/x-diff"

_Other = Annotated[
    str,
    Query(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="the id of the other plan, or of the same",
        examples=[EXAMPLE_PLAN],
    ),
]
_Before = Annotated[
    int | None,
    Query(ge=1, le=10**9, description="before that correction of the plan; else as it is now", examples=[1]),
]
_OtherBefore = Annotated[
    int | None,
    Query(ge=1, le=10**9, description="before that correction of the other; else as it is now"),
]


@router.get(
    "/plans/{plan_id}/comparison",
    operation_id="comparePlans",
    response_model=ComparisonView,
    responses={200: {"content": {_PATCH: {"schema": {"type": "string"}}}, "description": "the difference"}},
)
def compare_plans(
    plan_id: PlanId,
    client: PlanViewer,
    other: _Other,
    before: _Before = None,
    other_before: _OtherBefore = None,
    form: Annotated[
        Literal["json", "patch"], Query(alias="format", description="patch: what `git apply` takes")
    ] = "json",
    paths: Paths = None,
    renames: Renames = False,
) -> ComparisonView | Response:
    """Compares the result of a plan, now or before a correction, with that of another plan, or of the same
    one. The patch is to the byte for operators; masked, and without binary contents, for viewers. It has at
    most 10,000 files and 1,000,000 lines, and is of files of at most 64 MiB in all."""
    sides = {"before": before, "other_before": other_before}
    if form == "patch":
        patch = client.plans.compare_patch(plan_id, other, **sides, paths=paths or (), renames=renames)
        return Response(patch, media_type=_PATCH)
    return client.plans.compare(plan_id, other, **sides)
