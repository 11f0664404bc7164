"""Accounts as the models that describe them, and names that requests may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import Path as InPath
from fastapi import Query
from pydantic import BaseModel

from cleveragents.domain.json_value import JsonValue, freeze, thaw
from cleveragents.interfaces.desk.wording import shown_name

if TYPE_CHECKING:
    from pathlib import Path

    from cleveragents.interfaces.server.service import Service

__all__ = ["NAME", "InResource", "NamePath", "PartOfName", "account_as", "root_named", "sayable"]

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


def account_as(model: type[Model], account: Mapping[str, JsonValue]) -> Model:
    """The account, as the API promises it."""
    return model.model_validate(sayable(thaw(freeze(account))))


def sayable(value: object) -> object:
    """The same for JSON in UTF-8, whatever bytes the names of files are."""
    if type(value) is str:
        return shown_name(value)
    if isinstance(value, dict):
        return {sayable(key): sayable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [sayable(item) for item in value]
    return value


def root_named(here: Service, resource: str | None) -> Path | None:
    """Where the files of the resource of that name are; none for a remote that was never fetched here.
    `UnknownResource`, `SandboxRefused`."""
    from cleveragents.interfaces.desk.project_account import known_place_of

    if resource is None:
        return None
    return known_place_of(here.container, here.container.projects.resource(resource))
