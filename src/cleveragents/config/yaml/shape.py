"""Validation errors of pydantic in plain words, and helpers for loaders of YAML files.

A loader checks the meaning of a file even if its shape is wrong, so that one error lists all mistakes. For
that check, a value of the wrong type counts as empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import Struct

from cleveragents.config.yaml.document import DocumentKind, YamlDocument
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.template import Place

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

    Model = TypeVar("Model", bound=BaseModel)

__all__ = [
    "Problem",
    "Shape",
    "did_you_mean",
    "items_of",
    "mapping_of",
    "name_problem",
    "plain",
    "refuse_problems",
    "shape_problems",
]

Problem: TypeAlias = tuple[Place, str]

# Replaces pydantic's messages, which address programmers.
_PLAIN_WORDS = {
    "string_type": "should be text; put it in quotes",
    "string_too_short": "is empty",
    "too_short": "is empty",
    "list_type": "should be a list: [a, b]",
    "dict_type": "should be a mapping: key: value",
    "model_type": "should be a mapping: key: value",
    "model_attributes_type": "should be a mapping: key: value",
    "bool_type": "should be true or false",
    "int_type": "should be a whole number, without quotes",
    "float_type": "should be a number, without quotes",
}


class Shape(Struct, frozen=True):
    """The allowed keys at each place, and an example value for a required key."""

    keys_at: Callable[[Place], Sequence[str]]
    example: Callable[[Place], str]
    place_of: Callable[[Place], Place] = lambda place: place
    """Maps a place in pydantic's error to the place in the file."""


def shape_problems(
    model: type[Model], data: Mapping[str, JsonValue], shape: Shape
) -> tuple[Model | None, list[Problem]]:
    """Return the data as an instance of the model, or the problems with its shape."""
    from pydantic import ValidationError

    try:
        return model.model_validate(plain(data)), []
    except ValidationError as error:
        return None, [_described(details, shape) for details in error.errors(include_url=False)]


def plain(value: JsonValue) -> object:
    """Return the value with plain lists and dictionaries, which strict models require."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def refuse_problems(
    problems: Iterable[Problem], document: YamlDocument, source: str, kind: DocumentKind
) -> None:
    """If there are problems, raise the error of `kind` with all of them, sorted by line."""
    lines = sorted({(document.line(place), problem) for place, problem in problems})
    if lines:
        raise kind.error(source, tuple(f"line {line}: {problem}" for line, problem in lines))


def did_you_mean(word: str, known: Collection[str], *, all_known: str = "known") -> str:
    """Return a hint with the closest known word, or with all known words."""
    near = get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else f"{all_known}: {', '.join(known)}"


def name_problem(name: str) -> str:
    """Return the problem text for an invalid name."""
    return (
        f"{name[:60]!r} is not a valid name; write namespace/name in lower-case letters, digits and hyphens"
    )


def mapping_of(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, Mapping) else {}


def items_of(value: JsonValue) -> tuple[JsonValue, ...]:
    return value if isinstance(value, tuple) else ()


def _described(details: ErrorDetails, shape: Shape) -> Problem:
    place = shape.place_of(tuple(details["loc"]))
    key = str(place[-1])
    if details["type"] == "extra_forbidden":
        hint = did_you_mean(key, shape.keys_at(place[:-1]), all_known="known here")
        return place, f"unknown key {key!r}; {hint}"
    if details["type"].startswith("union_tag"):
        return _of_type((*place, "type"), details, shape)
    if details["type"] == "missing":
        return place, f"{key!r} is missing; for example: {shape.example(place)}"
    what = f"{key!r}" if isinstance(place[-1], str) else f"entry {place[-1] + 1} of {place[-2]!r}"
    said = _PLAIN_WORDS.get(details["type"]) or details["msg"].replace("Input should", "should", 1)
    return place, f"{what} {said}"


def _of_type(place: Place, details: ErrorDetails, shape: Shape) -> Problem:
    facts = details.get("ctx", {})
    if "tag" not in facts:
        return place, f"'type' is missing; for example: {shape.example(place)}"
    known = [word.strip("'") for word in str(facts["expected_tags"]).split(", ")]
    said = str(facts["tag"])[:60]
    return place, f"there is no type {said!r}; {did_you_mean(said, known)}"
