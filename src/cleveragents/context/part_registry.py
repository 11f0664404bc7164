"""The parts of the context pipeline that the settings replace, by where they are to be loaded from.

Nothing is loaded here: the pipeline does that, on a thread that can be left behind. A setting names what it
wants, `module:attribute` or an entry point of `cleveragents.context`; being installed alone replaces nothing.
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
"""The group; an entry's object is a part, or a class of parts made without arguments."""


def replaced_parts(
    settings: ContextSettings, entries: Iterable[EntryPoint] | None = None
) -> dict[str, LoadPart]:
    """How each part is loaded that the settings name. `ConfigurationError`: no such part is installed."""
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
        there = f"there are {', '.join(sorted(found))}" if found else "none is installed"
        problem = f"no part called {name!r} is installed ({there}); or say module:attribute"
        raise ConfigurationError(f"context.{part}", problem)
    return found[name]
