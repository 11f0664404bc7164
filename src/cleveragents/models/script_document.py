"""Parsing of script files. Errors name the line of every mistake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from cleveragents.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from cleveragents.models.script import Script

__all__ = ["NO_SCRIPT", "UNREADABLE", "load_script", "read_script"]

NO_SCRIPT = "not a script; a script starts with `rules:`"
"""The problem of a file that is not a script at all."""

UNREADABLE = "cannot be read: "
"""Prefix of the problem of an unreadable file."""

_RULES = b"rules"


def load_script(path: Path) -> Script:
    """Load a script from a file. Raises `ConfigurationError` with every mistake."""
    from cleveragents.config.yaml.document import SIZE_LIMIT_BYTES

    try:
        with path.open("rb") as opened:
            content = opened.read(SIZE_LIMIT_BYTES + 1)  # guard: reads a bounded part of a file of any size
    except OSError as error:
        raise ConfigurationError(str(path), f"{UNREADABLE}{error.strerror}") from None
    return read_script(content, str(path))


def read_script(content: str | bytes, source: str) -> Script:
    """Parse a script from YAML. Errors refer to it as `source`."""
    from pydantic import ValidationError

    from cleveragents.config.yaml.document import DocumentKind, read_yaml
    from cleveragents.config.yaml.shape import plain
    from cleveragents.models.script import Script

    raw = content.encode() if isinstance(content, str) else content
    # Any user who names a model can name any file. Errors about a file that is not a script must not quote
    # it.
    if _RULES not in raw:  # guard: before the YAML parser can quote the file
        raise _no_script(source)
    kind = DocumentKind("script", "rules:", _refusal)
    document = read_yaml(raw, source, kind)
    if not isinstance(document.data, Mapping) or "rules" not in document.data:  # guard: no key is quoted
        raise _no_script(source)
    try:
        return Script.model_validate(plain(document.data))
    except ValidationError as error:
        problems = [_described(details) for details in error.errors(include_url=False)]
        lines = sorted((document.line(place), problem) for place, problem in problems)
        said = "; ".join(f"line {line}: {problem}" for line, problem in lines)
        raise ConfigurationError(source, said) from None


def _no_script(source: str) -> ConfigurationError:
    return ConfigurationError(source, NO_SCRIPT)


def _refusal(source: str, problems: tuple[str, ...]) -> ConfigurationError:
    return ConfigurationError(source, "; ".join(problems))


def _keys_at(place: tuple[str | int, ...]) -> tuple[str, ...]:
    """Return the keys that a part of a script may have."""
    from cleveragents.models.script import Script

    part: object = Script
    for step in place:
        if isinstance(step, str):
            part = _part_in(_fields_of(part)[step].annotation)
    return tuple(_fields_of(part))


def _fields_of(part: object) -> Mapping[str, FieldInfo]:
    from pydantic import BaseModel

    return part.model_fields if isinstance(part, type) and issubclass(part, BaseModel) else {}


def _part_in(annotation: object) -> object:
    """Return the pydantic model class that an annotation contains, directly or as the element of a list."""
    return next(filter(_fields_of, (annotation, *map(_part_in, get_args(annotation)))), None)


def _described(details: ErrorDetails) -> tuple[tuple[str | int, ...], str]:
    from cleveragents.config.yaml.shape import did_you_mean

    place = tuple(details["loc"])
    key = next((part for part in reversed(place) if isinstance(part, str)), "the script")
    if details["type"] == "extra_forbidden":
        return place, f"unknown key {key!r}; {did_you_mean(key, _keys_at(place[:-1]))}"
    if details["type"] == "missing":
        return place, f"{key!r} is missing"
    return (
        place,
        f"{key!r} {details['msg'].removeprefix('Value error, ').replace('Input should', 'should', 1)}",
    )
