"""The arguments of an action: their types, and conversion from text.

Nothing is guessed: a value of the wrong type is reported with the expected type, an unknown argument with the
closest known name. One error lists all mistakes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from math import isfinite

from msgspec import Struct

from cleveragents.core.errors import InvalidArguments
from cleveragents.core.json_value import FrozenObject, JsonValue

__all__ = ["Argument", "ArgumentType", "bound", "parsed"]

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})

# An action without a `rest` argument uses its list of this name as one.
_USUAL_REST = "command"


class ArgumentType(str, Enum):
    """The type of an argument. A path is relative to the root of the resource, without `..`."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    PATH = "path"

    @property
    def spoken(self) -> str:
        """The type with its article: `a list`, `an integer`."""
        return f"an {self.value}" if self is ArgumentType.INTEGER else f"a {self.value}"


class Argument(Struct, frozen=True):
    """One argument. It is required if it has no default. With `rest`, it receives the words after `--`."""

    name: str
    type: ArgumentType
    description: str = ""
    default: JsonValue = None
    rest: bool = False

    @property
    def required(self) -> bool:
        return self.default is None

    def fitted(self, value: JsonValue) -> JsonValue:
        """Return the value in the type of the argument. Raises `ValueError` if it does not fit."""
        return _FITTERS[self.type](value)

    def parsed(self, text: str) -> JsonValue:
        """Return the value of a text from the command line; for a list, one element or a JSON list."""
        return _PARSERS[self.type](text)


def bound(action: str, arguments: Sequence[Argument], values: Mapping[str, JsonValue]) -> FrozenObject:
    """Check the values and return a value for every argument, including defaults. Raises `InvalidArguments`
    with all mistakes.
    """
    problems = [_no_such(name, arguments) for name in values if _find(name, arguments) is None]
    result: dict[str, JsonValue] = {}
    for argument in arguments:
        value = values.get(argument.name, argument.default)
        if value is None:
            problems.append(f"{argument.name} ({argument.type.value}) is missing")
            continue
        try:
            result[argument.name] = argument.fitted(value)
        except ValueError as error:
            problems.append(f"{argument.name} should be {argument.type.spoken}: {error}")
    if problems:
        raise InvalidArguments(action, "; ".join(problems))
    return FrozenObject(result)


def parsed(
    action: str, arguments: Sequence[Argument], pairs: Sequence[str], rest: Sequence[str] = ()
) -> FrozenObject:
    """Return the values of a command line: `pairs` are `name=value`, `rest` holds the words after `--`.

    A list is given by repeating its name, or as a JSON list. Raises `InvalidArguments` with all mistakes.
    """
    values: dict[str, JsonValue] = {}
    problems: list[str] = []
    for pair in pairs:
        try:
            _take(pair, arguments, values)
        except ValueError as error:
            problems.append(str(error))
    if rest:
        problems += _take_rest(rest, arguments, values)
    if problems:
        raise InvalidArguments(action, "; ".join(problems))
    return bound(action, arguments, values)


def _take(pair: str, arguments: Sequence[Argument], values: dict[str, JsonValue]) -> None:
    name, equals, text = pair.partition("=")
    if not equals:
        raise ValueError(f"{pair!r} is not name=value")
    argument = _find(name, arguments)
    if argument is None:
        raise ValueError(_no_such(name, arguments))
    try:
        value = argument.parsed(text)
    except ValueError as error:
        raise ValueError(f"{name} should be {argument.type.spoken}: {error}") from None
    if name not in values:
        values[name] = value
        return
    before = values[name]
    if not isinstance(before, tuple) or not isinstance(value, tuple):
        raise ValueError(f"{name} is given twice; {argument.type.spoken} takes one value")
    values[name] = before + value


def _take_rest(
    rest: Sequence[str], arguments: Sequence[Argument], values: dict[str, JsonValue]
) -> Sequence[str]:
    declared = next((argument for argument in arguments if argument.rest), None)
    argument = declared or _find(_USUAL_REST, arguments)
    if argument is None or argument.type is not ArgumentType.LIST:
        return [f"the action takes no words after --, got {rest[0]!r}"]
    if argument.name in values:
        return [f"{argument.name} is given twice: by --arg and after --"]
    values[argument.name] = tuple(rest)
    return []


def _find(name: str, arguments: Sequence[Argument]) -> Argument | None:
    return next((argument for argument in arguments if argument.name == name), None)


def _no_such(name: str, arguments: Sequence[Argument]) -> str:
    names = [argument.name for argument in arguments]
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names) or 'none'}"
    return f"there is no argument {name!r}; {hint}"


def _string(value: JsonValue) -> str:
    if not isinstance(value, str):
        remedy = "; put it in quotes" if isinstance(value, int | float) else ""
        raise ValueError(f"{_shown(value)} is not text{remedy}")
    if "\0" in value:
        raise ValueError("the value contains a NUL character")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{value!r} is not Unicode text") from None
    return value


def _integer(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{_shown(value)} is not a whole number")
    return value


def _number(value: JsonValue) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{_shown(value)} is not a number")
    if not isfinite(value):
        raise ValueError(f"{value} is not finite")
    return value


def _boolean(value: JsonValue) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def _list(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{_shown(value)} is not a list")
    return tuple(_string(element) for element in value)


def _path(value: JsonValue) -> str:
    text = _string(value)
    if not text or text.startswith("/") or ".." in text.split("/"):
        raise ValueError(f"{text!r} leads outside; write a path relative to the root, without '..'")
    if text.startswith("-"):  # guard: a file with a name like an option stays a file
        return f"./{text}"
    return text


def _parsed_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{_shown(text)} is not a whole number") from None


def _parsed_number(text: str) -> int | float:
    try:
        return _number(float(text))
    except ValueError:
        raise ValueError(f"{_shown(text)} is not a number") from None


def _parsed_boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"{_shown(text)} is neither true nor false")


def _parsed_list(text: str) -> tuple[str, ...]:
    if not text.startswith("["):
        return (_string(text),)
    try:
        return _list(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{_shown(text)} is not a valid JSON list ({error})") from None


def _shown(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


_FITTERS: Mapping[ArgumentType, Callable[[JsonValue], JsonValue]] = {
    ArgumentType.STRING: _string,
    ArgumentType.INTEGER: _integer,
    ArgumentType.NUMBER: _number,
    ArgumentType.BOOLEAN: _boolean,
    ArgumentType.LIST: _list,
    ArgumentType.PATH: _path,
}
_PARSERS: Mapping[ArgumentType, Callable[[str], JsonValue]] = {
    ArgumentType.STRING: _string,
    ArgumentType.INTEGER: _parsed_integer,
    ArgumentType.NUMBER: _parsed_number,
    ArgumentType.BOOLEAN: _parsed_boolean,
    ArgumentType.LIST: _parsed_list,
    ArgumentType.PATH: _path,
}
