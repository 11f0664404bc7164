"""What two plans came to, beside each other."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from cleveragents.access.model.user import Role
from cleveragents.api.plans.comparing import (
    ComparisonBounds,
    differing_files,
    ensure_comparable,
    outcome_of,
    repositories_differ,
)
from cleveragents.api.plans.diffs import masked_patch
from cleveragents.server.access import AnyUser, ReadPlan
from cleveragents.server.accounts import account_as
from cleveragents.server.plan_models import EXAMPLE_PLAN, Change
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["plans"])

_PATCH = "text/x-diff"
_OPTIONS = ("--no-color", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/")

_MOST_FILES = 10_000

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


class Comparison(BaseModel):
    """The files in which two outcomes differ."""

    files: list[Change] = Field(
        description="as they change from the plan's outcome to the other's; the first 10,000"
    )
    truncated: bool = Field(description="whether there are more", examples=[False])
    note: str | None = Field(description="that they are plans of different repositories", examples=[None])


@router.get(
    "/plans/{plan_id}/comparison",
    operation_id="comparePlans",
    response_model=Comparison,
    responses={200: {"content": {_PATCH: {"schema": {"type": "string"}}}, "description": "the difference"}},
)
def compare_plans(
    plan: ReadPlan,
    here: Here,
    access: AnyUser,
    other: _Other,
    before: _Before = None,
    other_before: _OtherBefore = None,
    form: Annotated[
        Literal["json", "patch"], Query(alias="format", description="patch: what `git apply` takes")
    ] = "json",
) -> Comparison | Response:
    """Compares what a plan has come to, now or before a correction, with what another has, or the same
    one. The patch is to the byte for operators; masked, and without binary contents, for viewers. It has at
    most 10,000 files and 1,000,000 lines, and is of files of at most 64 MiB in all."""
    from cleveragents.sandboxes.outcomes import diff_between

    parts = here.parts
    plans = [plan, access.plan(other, Role.VIEWER)]
    one, then = outcome_of(parts, plans[0], before), outcome_of(parts, plans[1], other_before)
    if form == "patch":
        ensure_comparable(one, then, ComparisonBounds(files=_MOST_FILES))
        # guard: who may not apply both needs no secret of them
        masked = not all(access.user.may(Role.OPERATOR, one.project) for one in plans)
        patch = diff_between(one, then, options=_OPTIONS if masked else ("--binary", *_OPTIONS))
        return Response(masked_patch(patch) if masked else patch, media_type=_PATCH)
    note = repositories_differ(*plans)
    files = differing_files(one, then, most=_MOST_FILES + 1)
    cut = len(files) > _MOST_FILES
    return account_as(Comparison, {"files": files[:_MOST_FILES], "truncated": cut, "note": note})
