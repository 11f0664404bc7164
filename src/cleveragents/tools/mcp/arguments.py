"""Checks the arguments of a call against the schema that a server gave for them.

A schema is somebody else's: what it refers to elsewhere is not fetched, and its regular expressions are not
run, since one can take for ever. The server itself judges what is left out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from cleveragents.core.errors import InvalidToolCall
from cleveragents.core.json_value import FrozenObject, JsonValue, thaw

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

__all__ = ["check_arguments"]

_SHOWN = 5
_LONGEST = 300


def check_arguments(tool: str, schema: Mapping[str, JsonValue], arguments: Mapping[str, JsonValue]) -> None:
    """Returns, or says what is wrong: `InvalidToolCall`."""
    from jsonschema.exceptions import ValidationError
    from referencing.exceptions import Unresolvable

    problems: list[str] = []
    try:
        found = _validator()(thaw(FrozenObject(schema)), registry=_nothing_elsewhere())
        for error in found.iter_errors(thaw(FrozenObject(arguments))):
            problems.append(_problem(error))
            if len(problems) == _SHOWN:
                break
    except (Unresolvable, ValidationError, TypeError, ValueError, RecursionError):
        return  # a schema that nobody can make sense of: the server has to judge
    if problems:
        raise InvalidToolCall(tool, "; ".join(problems))


@cache
def _validator() -> type[Validator]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # guard: an expression of a stranger's could hold us for ever
    unread = dict.fromkeys(("pattern", "patternProperties"), _pass)
    found: type[Validator] = extend(Draft202012Validator, unread)
    return found


@cache
def _nothing_elsewhere() -> Any:
    from referencing import Registry

    return Registry()


def _pass(validator: object, value: object, instance: object, schema: object) -> Iterator[Any]:
    return iter(())


def _problem(error: Any) -> str:
    place = ".".join(str(step) for step in error.absolute_path)
    said = str(error.message)[:_LONGEST]
    return f"the argument {place!r} is wrong: {said}" if place else said
