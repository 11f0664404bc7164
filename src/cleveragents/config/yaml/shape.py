"""What pydantic says of a file's shape, in words for whoever wrote the file; and loose ends of reading one.

The meaning of a file is judged by its loader, even where the shape is wrong: so that nobody mends one mistake
to be told of the next, what is not of the right type counts as empty there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias, TypeVar

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

# pydantic's words are for programmers.
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


@dataclass(frozen=True, slots=True)
class Shape:
    """What may stand where: the keys at a place, and an example of one that has to."""

    keys_at: Callable[[Place], Sequence[str]]
    example: Callable[[Place], str]
    place_of: Callable[[Place], Place] = lambda place: place
    """From pydantic's place to the file's."""


def shape_problems(
    model: type[Model], data: Mapping[str, JsonValue], shape: Shape
) -> tuple[Model | None, list[Problem]]:
    """The data as the model, or what is wrong with its shape."""
    from pydantic import ValidationError

    try:
        return model.model_validate(plain(data)), []
    except ValidationError as error:
        return None, [_described(details, shape) for details in error.errors(include_url=False)]


def plain(value: JsonValue) -> object:
    """Strict models take lists and dictionaries, not what resembles them."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def refuse_problems(
    problems: Iterable[Problem], document: YamlDocument, source: str, kind: DocumentKind
) -> None:
    """Raises the kind's error if there are any, in the order of the lines."""
    lines = sorted({(document.line(place), problem) for place, problem in problems})
    if lines:
        raise kind.error(source, tuple(f"line {line}: {problem}" for line, problem in lines))


def did_you_mean(word: str, known: Collection[str], *, all_known: str = "known") -> str:
    """A hint for who wrote a word that is none of those."""
    near = get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else f"{all_known}: {', '.join(known)}"


def name_problem(name: str) -> str:
    """What to say of a name that is none."""
    return f"{name[:60]!r} is no name; write namespace/name in small letters, digits and hyphens"


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
