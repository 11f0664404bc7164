"""Accounts as the models that describe them, and names that requests may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar, get_args

from fastapi import Path as InPath
from fastapi import Query
from pydantic import BaseModel, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from cleveragents.api.wording import shown_value
from cleveragents.core.json_value import JsonValue, freeze, thaw

__all__ = ["NAME", "Body", "InResource", "NamePath", "PartOfName", "account_as"]

Model = TypeVar("Model", bound=BaseModel)

NAME = r"^[a-z0-9][a-z0-9._-]*$"
"""Names of projects and resources: lower case letters, digits and `._-`."""

NamePath = Annotated[str, InPath(max_length=64, pattern=NAME, examples=["shop"])]
# A part of `namespace/name`. It has no dot, so it is never a file.
PartOfName = Annotated[
    str, InPath(max_length=64, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", examples=["builtin"])
]
InResource = Annotated[
    str | None,
    Query(
        max_length=64,
        pattern=NAME,
        description="what the repository of this resource brings along counts, too",
        examples=["shop-main"],
    ),
]


class Body(BaseModel):
    """A request body. `true` is not a number in it, although pydantic would read it as 1."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_boolean(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool) and info.field_name is not None:
            annotation = cls.model_fields[info.field_name].annotation
            kinds = {annotation, *get_args(annotation)}
            if bool not in kinds and kinds & {int, float}:
                raise PydanticKnownError("int_type" if int in kinds else "float_type")
        return value


def account_as(model: type[Model], account: Mapping[str, JsonValue]) -> Model:
    """The account, as the API promises it."""
    return model.model_validate(shown_value(thaw(freeze(account))))
