"""From the text of a script to the script, or to everything that is wrong with it, line by line."""

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

NO_SCRIPT = "it is no script; a script begins with `rules:`"
"""What is wrong with a file that is something else."""

UNREADABLE = "cannot be read: "
"""So what is wrong begins where a file is none that can be read."""

_RULES = b"rules"


def load_script(path: Path) -> Script:
    """The script in a file; `ConfigurationError` says what is wrong with it."""
    from cleveragents.config.yaml.document import SIZE_LIMIT_BYTES

    try:
        with path.open("rb") as opened:
            content = opened.read(SIZE_LIMIT_BYTES + 1)  # guard: however large it is
    except OSError as error:
        raise ConfigurationError(str(path), f"{UNREADABLE}{error.strerror}") from None
    return read_script(content, str(path))


def read_script(content: str | bytes, source: str) -> Script:
    """The script of a YAML text, which errors call `source`."""
    from pydantic import ValidationError

    from cleveragents.config.yaml.document import DocumentKind, read_yaml
    from cleveragents.config.yaml.shape import plain
    from cleveragents.models.script import Script

    raw = content.encode() if isinstance(content, str) else content
    # Whoever names a model names a file: of one that is no script, nothing is quoted to them.
    if _RULES not in raw:  # guard: not by what is wrong with its YAML
        raise _no_script(source)
    kind = DocumentKind("script", "rules:", _refusal)
    document = read_yaml(raw, source, kind)
    if not isinstance(document.data, Mapping) or "rules" not in document.data:  # guard: not by its keys
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
    """Which keys a part of a script may have."""
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
    """The part that a field holds, alone or in a list."""
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
