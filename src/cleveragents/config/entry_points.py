"""What installed packages offer under a group of entry points, and what we bring along ourselves. Reading all
packages takes its time, so it is done once, and again when one came or went."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

__all__ = ["built_in", "installed"]

_MOST_GROUPS = 8

_SearchPath = tuple[tuple[str, int], ...]


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Every entry of the group, as packages are installed now. Any thread may ask."""
    return _read(group, _search_path())


@cache
def built_in(package: ModuleType) -> frozenset[str]:
    """The names of the modules of a package of ours, which stay as they are while we run."""
    return frozenset(module.name for module in pkgutil.iter_modules(package.__path__))


def _search_path() -> _SearchPath:
    """Where packages are looked for, and when something was last installed or removed there."""
    path = []
    for place in sys.path:
        with suppress(OSError):
            path.append((place, Path(place).stat().st_mtime_ns))
    return tuple(path)


@lru_cache(maxsize=_MOST_GROUPS)
def _read(group: str, path: _SearchPath) -> tuple[EntryPoint, ...]:
    return tuple(_select(path)(group=group))


@lru_cache(maxsize=1)
def _select(path: _SearchPath) -> Callable[..., Iterable[EntryPoint]]:
    """All groups are read at once: every one of them stands in the same files."""
    return entry_points().select
