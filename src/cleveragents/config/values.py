"""Parsed values of settings with their origin, and the mistakes found in them.

All mistakes are collected and raised together, so that the user can fix them in one edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

import msgspec
from msgspec import Struct

from cleveragents.config.settings import (
    Key,
    Scalar,
    Settings,
    known_keys,
    nearest_key,
)
from cleveragents.core.errors import ConfigurationError, Remedy

__all__ = [
    "Layer",
    "Mistakes",
    "Origin",
    "Scalar",
    "Values",
    "find_key",
    "parse_value",
    "shorten",
    "validate_settings",
]


class Layer(str, Enum):
    """The source of a value, weakest first."""

    DEFAULT = "default"
    FILE = "file"
    REPOSITORY = "repository"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(Struct, frozen=True):
    """The layer that decided a setting, and the exact place in it."""

    layer: Layer
    place: str = ""

    def __str__(self) -> str:
        return self.place or self.layer.value


Values = dict[str, tuple[Scalar, Origin]]
_SPOKEN = {
    "Expected": "should be",
    "Number out": "is out",
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "text",
}
_SETTINGS = Remedy("config.list", text="List the settings")


def find_key(dotted: str, source: str) -> Key:
    """Return the setting with this key.

    Raises `ConfigurationError` with the closest known key if there is none.
    """
    key = known_keys().get(dotted)
    if key is None:
        remedies = () if nearest_key(dotted) else (_SETTINGS,)
        raise ConfigurationError(source, f"there is no setting {shorten(dotted)}{_hint(dotted)}", remedies)
    return key


def _hint(dotted: str) -> str:
    nearest = nearest_key(dotted)
    if nearest:
        return f"; did you mean {nearest!r}?"
    from difflib import get_close_matches

    sections = sorted({key.section for key in known_keys().values()})
    close = get_close_matches(dotted.partition(".")[0], sections, n=1)
    if close:
        return f"; did you mean the section [{close[0]}]?"
    return ""


def parse_value(key: Key, value: object, source: str, *, strict: bool = False) -> Scalar:
    """Return the value in the type of the setting; `strict` is for TOML, which has types."""
    known = key.aliases.get(value, value) if isinstance(value, str) else value
    try:
        section = msgspec.convert({key.name: known}, key.model, strict=strict)
    except msgspec.ValidationError as error:
        problem = _in_words(error, key)
        raise ConfigurationError(source, f"{key.dotted} is {shorten(value)}, but {problem}") from None
    parsed: Scalar = getattr(section, key.name)
    return parsed


def _in_words(error: msgspec.ValidationError, key: Key) -> str:
    """Return msgspec's message in plain words, without type names and paths."""
    if key.choices:
        *others, last = map(repr, key.choices)
        return f"should be {', '.join(others)} or {last}"
    said = str(error).partition(" - at `$")[0].partition(", got `")[0]
    for theirs, ours in _SPOKEN.items():
        said = said.replace(theirs, ours)
    return said


def validate_settings(values: Mapping[str, Scalar], source: str) -> Settings:
    """Return all settings. Raises `ConfigurationError` if they contradict each other."""
    nested: dict[str, dict[str, Scalar]] = {}
    for dotted, value in values.items():
        section, _, name = dotted.partition(".")
        nested.setdefault(section, {})[name] = value
    try:
        return msgspec.convert(nested, Settings)
    except msgspec.ValidationError as error:
        raise ConfigurationError(source, str(error)) from None


def shorten(value: object) -> str:
    """Return the value for an error message: quoted, without secrets, at most 80 characters long."""
    from cleveragents.core.text.redaction import redact_text

    text = redact_text(repr(value))
    return text if len(text) <= 80 else f"{text[:77]}…"


class Mistakes:
    """The mistakes found so far, in order. Not thread-safe: use it in the call that made it."""

    def __init__(self) -> None:
        self._found: list[ConfigurationError] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, error: ConfigurationError) -> None:
        self._found.append(error)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Collect a `ConfigurationError` raised in the block instead of propagating it."""
        try:
            yield
        except ConfigurationError as error:
            self.add(error)

    def raise_any(self) -> None:
        """Raise one `ConfigurationError` with all mistakes, one per line, if there are any."""
        if self._found:
            first, *others = self._found
            remedies: list[Remedy] = []
            for remedy in (remedy for error in self._found for remedy in error.remedies):
                remedies += [] if remedy in remedies else [remedy]
            problem = "\n".join([first.problem, *map(str, others)])
            raise ConfigurationError(first.source, problem, tuple(remedies))
