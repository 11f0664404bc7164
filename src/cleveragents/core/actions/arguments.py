"""The arguments of an action: their types, and how what somebody typed becomes a value.

Nothing is guessed: an argument that does not fit is named with its type, one that does not exist with the
nearest that does. All mistakes are told at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from math import isfinite

from cleveragents.core.errors import InvalidArguments
from cleveragents.core.json_value import FrozenObject, JsonValue

__all__ = ["Argument", "ArgumentType", "bound", "parsed"]

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})

# Who declares no `rest` argument and has a list of this name means that one.
_USUAL_REST = "command"


class ArgumentType(str, Enum):
    """What an argument's value is. A path is relative to the root of what the plan changes, without `..`."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    PATH = "path"

    @property
    def spoken(self) -> str:
        """`a list`, `an integer`."""
        return f"an {self.value}" if self is ArgumentType.INTEGER else f"a {self.value}"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. Without a default it has to be given; `rest` takes what stands after `--`."""

    name: str
    type: ArgumentType
    description: str = ""
    default: JsonValue = None
    rest: bool = False

    @property
    def required(self) -> bool:
        return self.default is None

    def fitted(self, value: JsonValue) -> JsonValue:
        """The value as the action gets it; `ValueError` says why it is none of this type."""
        return _FITTERS[self.type](value)

    def parsed(self, text: str) -> JsonValue:
        """The value of what somebody typed; a list's is one element, or a JSON list."""
        return _PARSERS[self.type](text)


def bound(action: str, arguments: Sequence[Argument], values: Mapping[str, JsonValue]) -> FrozenObject:
    """A value for every argument, defaults included. `InvalidArguments` names every mistake."""
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
    """The values of a command line: `pairs` are `name=value`, `rest` is what stood after `--`.

    A list is given by repeating its name, or as a JSON list. `InvalidArguments` names every mistake.
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
        raise ValueError(f"{name} is given twice, and {argument.type.spoken} has one value")
    values[name] = before + value


def _take_rest(
    rest: Sequence[str], arguments: Sequence[Argument], values: dict[str, JsonValue]
) -> Sequence[str]:
    declared = next((argument for argument in arguments if argument.rest), None)
    argument = declared or _find(_USUAL_REST, arguments)
    if argument is None or argument.type is not ArgumentType.LIST:
        return [f"it takes nothing after --, and was given {rest[0]!r}"]
    if argument.name in values:
        return [f"{argument.name} is given twice: by --arg and after --"]
    values[argument.name] = tuple(rest)
    return []


def _find(name: str, arguments: Sequence[Argument]) -> Argument | None:
    return next((argument for argument in arguments if argument.name == name), None)


def _no_such(name: str, arguments: Sequence[Argument]) -> str:
    names = [argument.name for argument in arguments]
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names) or 'none'}"
    return f"there is no argument {name!r}; {hint}"


def _string(value: JsonValue) -> str:
    if not isinstance(value, str):
        remedy = "; put it in quotes" if isinstance(value, int | float) else ""
        raise ValueError(f"{_shown(value)} is no text{remedy}")
    if "\0" in value:
        raise ValueError("it holds a NUL")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{value!r} is not Unicode text") from None
    return value


def _integer(value: JsonValue) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{_shown(value)} is no whole number")
    return value


def _number(value: JsonValue) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{_shown(value)} is no number")
    if not isfinite(value):
        raise ValueError(f"{value} is not finite")
    return value


def _boolean(value: JsonValue) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def _list(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{_shown(value)} is no list")
    return tuple(_string(element) for element in value)


def _path(value: JsonValue) -> str:
    text = _string(value)
    if not text or text.startswith("/") or ".." in text.split("/"):
        raise ValueError(f"{text!r} is not a path inside; write it relative to the root, without '..'")
    if text.startswith("-"):  # guard: a file that is named like an option stays a file
        return f"./{text}"
    return text


def _parsed_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{_shown(text)} is no whole number") from None


def _parsed_number(text: str) -> int | float:
    try:
        return _number(float(text))
    except ValueError:
        raise ValueError(f"{_shown(text)} is no number") from None


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
        raise ValueError(f"{_shown(text)} begins like a JSON list and is none ({error})") from None


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
