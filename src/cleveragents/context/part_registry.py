"""The parts of the context pipeline that the settings replace.

This module loads no part; the pipeline does that, on a thread that it can abandon. A setting names a part as
`module:attribute` or as an entry point of `cleveragents.context`. An installed part is not used unless a
setting names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

from cleveragents.config.entry_points import installed
from cleveragents.config.settings import ContextSettings
from cleveragents.context.pipeline.checks import PARTS, LoadPart
from cleveragents.core.errors import ConfigurationError

__all__ = ["ENTRY_POINTS", "replaced_parts"]

ENTRY_POINTS = "cleveragents.context"
"""Entry point group. Each entry refers to a part, or to a class that is instantiated without arguments."""


def replaced_parts(
    settings: ContextSettings, entries: Iterable[EntryPoint] | None = None
) -> dict[str, LoadPart]:
    """Return a loader for each part that the settings name.

    Raises `ConfigurationError` if a part is not installed.
    """
    named = {part: str(getattr(settings, part)) for part in PARTS}
    loads: dict[str, LoadPart] = {}
    for part, name in named.items():
        if name:
            loads[part] = _Loading(_entry(part, name, entries))
    return loads


@dataclass(frozen=True, slots=True)
class _Loading:
    entry: EntryPoint

    def __call__(self) -> Any:
        offered = self.entry.load()
        return offered() if isinstance(offered, type) else offered


def _entry(part: str, name: str, entries: Iterable[EntryPoint] | None) -> EntryPoint:
    if ":" in name:
        return EntryPoint(part, name, ENTRY_POINTS)
    known = installed(ENTRY_POINTS) if entries is None else entries
    found = {entry.name: entry for entry in sorted(known, key=lambda one: one.value, reverse=True)}
    if name not in found:
        there = f"installed: {', '.join(sorted(found)) or 'none'}"
        problem = f"no part named {name!r} ({there}); install it, or use module:attribute"
        raise ConfigurationError(f"context.{part}", problem)
    return found[name]
