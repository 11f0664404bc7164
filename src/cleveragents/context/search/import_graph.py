"""The origin of names: the file of a module, and the file that defines a name that another file re-exports.

A lookup reads only the files on the path of imports, each once, so its time does not depend on the size of
the repository.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cleveragents.context.model.code import FileAnalysis, Import
from cleveragents.context.search.question_search import QuestionSearch
from cleveragents.context.strategy import CancelSignal

__all__ = ["ImportGraph", "imported_by"]

_DEPTH = 6
_MOST_FILES = 60
_MOST_IMPORTS = 100
_MOST_TARGETS = 60
_STAR = "*"


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a file: `defined` in it, `taken` from a module under a local name, and the modules
    imported with `*`.
    """

    defined: frozenset[str]
    taken: dict[str, tuple[str, str]]
    stars: tuple[str, ...]


class ImportGraph:
    """The imports of one snapshot, loaded on demand. Not thread-safe: use it in the call that created it."""

    def __init__(self, look: QuestionSearch) -> None:
        self._look = look
        self._names: dict[str, _Names | None] = {}
        self._definers: dict[tuple[str, str], list[str]] = {}

    def load(self, paths: Sequence[str]) -> Mapping[int, FileAnalysis]:
        """Load the analyses of these files together, which is faster than one by one."""
        documents = self._look.documents
        return self._look.code.analyses([documents[path] for path in paths])

    def names(self, path: str) -> _Names | None:
        if path not in self._names:
            if len(self._names) >= _MOST_FILES:  # guard: a chain of re-exports may lead anywhere
                return None
            analysis = self.load([path]).get(self._look.documents[path])
            self._names[path] = None if analysis is None else _names_of(analysis)
        return self._names[path]

    def modules(self, name: str, importer: str = "") -> list[str]:
        """Return the files that a module name, as used in the file `importer`, may refer to; several if the
        name is ambiguous.
        """
        name = name.strip("\"'")
        if name.startswith("."):
            return self._relative(name, importer)
        if "/" in name:
            return self._look.ends.files_of(name.split("/"))
        parts = [part for part in name.replace("::", ".").split(".") if part not in ("crate", "self")]
        return self._look.ends.files_of(parts)

    def _relative(self, name: str, importer: str) -> list[str]:
        directory = importer.split("/")[:-1]
        if "/" in name:
            for part in name.split("/"):
                if part == "..":
                    directory = directory[:-1]
                elif part != ".":
                    directory = [*directory, part.partition(".")[0]]
            return self._look.ends.exactly(directory)
        rest = name.lstrip(".")
        up = len(name) - len(rest) - 1
        if up > len(directory):
            return []
        return self._look.ends.exactly(
            [*directory[: len(directory) - up], *(rest.split(".") if rest else [])]
        )

    def definers(self, path: str, name: str, depth: int = _DEPTH) -> list[str]:
        """Return the files that define `name` as used in `path`: the file itself or the
        source of the import.
        """
        key = (path, name)
        if key not in self._definers:
            self._definers[key] = self._find_definers(path, name, depth)
        return self._definers[key]

    def _find_definers(self, path: str, name: str, depth: int) -> list[str]:
        names = self.names(path) if depth > 0 else None
        if names is None:
            return []
        if name in names.defined:
            return [path]
        if name in names.taken:
            module, original = names.taken[name]
            return self.targets(path, Import(module, ((original, name),)), depth)
        for star in names.stars:
            for module in self.modules(star, path):
                if module != path and (found := self.definers(module, name, depth - 1)):
                    return found
        return []

    def targets(self, path: str, imported: Import, depth: int = _DEPTH) -> list[str]:
        """Return the files that define what the import `imported` in the file `path` refers to, after
        following re-exports.
        """
        found: dict[str, None] = {}
        modules = self.modules(imported.module, path)
        for original, _ in imported.names:
            joiner = "" if imported.module.endswith(".") else "."
            inner = self.modules(f"{imported.module}{joiner}{original}", path) if original != _STAR else []
            definers = [
                definer
                for module in modules
                if module != path
                for definer in (self.definers(module, original, depth - 1) or [module])
            ]
            found.update(dict.fromkeys(inner or definers))
        return list(found) if imported.names else modules

    def dotted(self, name: str) -> list[str]:
        """Return the files that define a dotted name. The longest prefix that is a module is looked up, then
        the name after it, which the module defines or re-exports.
        """
        parts = name.replace("::", ".").split(".")
        for end in range(len(parts), 0, -1):
            modules = self._look.ends.files_of(parts[:end])
            if modules:
                if end == len(parts):
                    return modules
                return [path for one in modules for path in (self.definers(one, parts[end]) or [one])]
        return []


def _names_of(analysis: FileAnalysis) -> _Names:
    taken: dict[str, tuple[str, str]] = {}
    stars: list[str] = []
    for imported in analysis.imports:
        for original, local in imported.names:
            if original == _STAR:
                stars.append(imported.module)
            else:
                taken[local] = (imported.module, original)
    defined = frozenset(one.name for one in analysis.definitions if one.parent is None)
    return _Names(defined, taken, tuple(stars))


def imported_by(
    graph: ImportGraph, look: QuestionSearch, sources: Sequence[tuple[str, float]], cancelled: CancelSignal
) -> dict[str, float]:
    """Return the files that these files import; each source divides its score among its imports."""
    analyses = graph.load([path for path, _ in sources])
    scores: dict[str, float] = {}
    for path, worth in sources:
        analysis = analyses.get(look.documents[path])
        if analysis is None or cancelled.is_cancelled:
            continue
        imports = analysis.imports[:_MOST_IMPORTS]
        targets = {target for one in imports for target in graph.targets(path, one)} - {path}
        for target in sorted(targets)[:_MOST_TARGETS]:
            scores[target] = scores.get(target, 0.0) + worth / (3 + len(targets)) ** 0.5
    return scores
