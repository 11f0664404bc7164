"""Parameters and bodies that routes share: names, pages of lists, plans, and strict request bodies."""

from __future__ import annotations

from typing import Annotated, get_args

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from cleveragents.api.plans.summary import EXAMPLE_PLAN

__all__ = [
    "NAME",
    "After",
    "Body",
    "InResource",
    "Limit",
    "NamePath",
    "OfPlan",
    "PartOfName",
    "Paths",
    "PlanId",
    "Renames",
    "StrictBody",
]

NAME = r"^[a-z0-9][a-z0-9._-]*$"
"""Names of projects and resources: lower case letters, digits and `._-`."""
NamePath = Annotated[str, Path(max_length=64, pattern=NAME, examples=["shop"])]
# A part of `namespace/name`. It has no dot, so it is never a file.
PartOfName = Annotated[
    str, Path(max_length=64, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", examples=["builtin"])
]
InResource = Annotated[
    str | None,
    Query(
        max_length=64,
        pattern=NAME,
        description="include the items in the repository of this resource",
        examples=["shop-main"],
    ),
]

Limit = Annotated[int, Query(ge=1, le=1000, description="maximum number of items")]
After = Annotated[str | None, Query(max_length=300, description="`next` of the previous page")]

PlanId = Annotated[
    str,
    Path(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="the id of a plan, or an unambiguous beginning or end of it",
        examples=[EXAMPLE_PLAN],
    ),
]
OfPlan = Annotated[
    str | None,
    Query(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="only items of the plan with this full id, without its sub-plans",
        examples=[EXAMPLE_PLAN],
    ),
]
Paths = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=1024)]] | None,
    Query(
        alias="path",
        max_length=20,
        description="for a patch: only these files and directories; may be repeated",
        examples=[["src/export.py"]],
    ),
]
Renames = Annotated[
    bool, Query(description="for a patch: show a moved file as moved, not as deleted and created")
]


class Body(BaseModel):
    """A request body. `true` is refused as a number; pydantic would read it as 1."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool) and info.field_name is not None:
            annotation = cls.model_fields[info.field_name].annotation
            kinds = {annotation, *get_args(annotation)}
            if bool not in kinds and kinds & {int, float}:
                raise PydanticKnownError("int_type" if int in kinds else "float_type")
        return value


class StrictBody(Body):
    """A request body that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")

    @field_validator("*", mode="after")
    @classmethod
    def _is_text(cls, value: object) -> object:
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and "\0" in text for text in texts):  # guard: no command can have one
            raise ValueError("must not contain NUL")
        return value
