"""Parameters and bodies that the routes of plans share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import ConfigDict, StringConstraints, field_validator

from cleveragents.api.plans.views import EXAMPLE_PLAN
from cleveragents.server.accounts import Body

__all__ = ["OfPlan", "Paths", "PlanId", "Renames", "Strict"]

PlanId = Annotated[
    str,
    Path(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="the id of a plan, or as much of its beginning or end as is unambiguous",
        examples=[EXAMPLE_PLAN],
    ),
]
OfPlan = Annotated[
    str | None,
    Query(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="only those of the plan with this id, the whole of it; sub-plans have their own",
        examples=[EXAMPLE_PLAN],
    ),
]

Paths = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=1024)]] | None,
    Query(
        alias="path",
        max_length=20,
        description="of a patch: only these files, and those below these directories; may be repeated",
        examples=[["src/export.py"]],
    ),
]
Renames = Annotated[
    bool, Query(description="of a patch: show a moved file as moved, and not as deleted and created")
]


class Strict(Body):
    """What somebody sends: a name that is not known is a mistake, and no wish."""

    model_config = ConfigDict(extra="forbid")

    @field_validator("*", mode="after")
    @classmethod
    def _is_text(cls, value: object) -> object:
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and "\0" in text for text in texts):  # guard: no command has one
            raise ValueError("a text has no NUL in it")
        return value
