"""Which files of a snapshot a path or a module name means, going by how their ends agree."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["PathEnds"]

_MOST_MEANT = 8
"""A name that more files have says nothing of any of them."""

_FOLDER_FILES = frozenset({"__init__", "index", "mod", "lib"})
"""Files that stand for the directory that they are in."""


class PathEnds:
    """The paths of one snapshot, by their last parts."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._by_name: dict[str, list[str]] = {}
        for path in paths:
            self._by_name.setdefault(path.rpartition("/")[2], []).append(path)
        self._by_stem: dict[str, list[str]] | None = None

    def meant(self, mention: str) -> list[str]:
        """The files that agree longest with it, none if that is the name alone although it says more."""
        parts = [part for part in mention.replace("\\", "/").split("/") if part not in ("", ".", "..", "~")]
        if not parts:
            return []
        same = self._by_name.get(parts[-1], ())
        agreeing = [(_agreement(parts, path.split("/")), path) for path in same]
        longest = max((length for length, _ in agreeing), default=0)
        kept = [path for length, path in agreeing if length == longest]
        if longest < min(len(parts), 2) and not (longest == 1 and all("/" not in path for path in kept)):
            return []
        return kept if len(kept) <= _MOST_MEANT else []

    def one(self, mention: str) -> str | None:
        """The file that it means, if it can only mean one."""
        meant = self.meant(mention)
        return meant[0] if len(meant) == 1 else None

    def exactly(self, parts: list[str]) -> list[str]:
        """The files that stand for the module at this very place."""
        return [path for path in self._stem(parts[-1]) if _module_parts(path) == parts] if parts else []

    def files_of(self, parts: list[str]) -> list[str]:
        """The files that this module may be; of several those nearest to the root."""
        kept = self._ending(parts)
        shortest = min((path.count("/") for path in kept), default=0)
        nearest = [path for path in kept if path.count("/") == shortest]
        return nearest if len(nearest) <= _MOST_MEANT else []

    def _ending(self, parts: list[str]) -> list[str]:
        """The files whose modules end with all of these parts."""
        same = self._stem(parts[-1]) if parts else []
        return [path for path in same if _agreement(parts, _module_parts(path)) == len(parts)]

    def _stem(self, stem: str) -> list[str]:
        if self._by_stem is None:
            self._by_stem = _module_ends(path for paths in self._by_name.values() for path in paths)
        return self._by_stem.get(stem, [])

    def module(self, dotted: str) -> dict[str, float]:
        """Files that the dotted name is, or that it begins with, each with how far it is believed.

        `package.module.Class.method` means `…/package/module.py`: its longest beginning that is a file.
        """
        parts = [part for part in dotted.replace("::", ".").replace("#", ".").split(".") if part]
        for end in range(len(parts), 1, -1):  # one word agrees with too much
            found = self._ending(parts[:end])
            if 0 < len(found) <= _MOST_MEANT:
                return {path: 1 / len(found) for path in found}
        return {}


def _agreement(one: list[str], other: list[str]) -> int:
    """How many parts they have in common, from the end."""
    length = 0
    for left, right in zip(reversed(one), reversed(other), strict=False):
        if left != right:
            break
        length += 1
    return length


def _module_parts(path: str) -> list[str]:
    *directories, name = path.split("/")
    stem = name.partition(".")[0]
    return directories if stem in _FOLDER_FILES and directories else [*directories, stem]


def _module_ends(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(_module_parts(path)[-1], []).append(path)
    return found
