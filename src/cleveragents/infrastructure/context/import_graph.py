"""Where names come from: which file a module is, and which file defines what another file only passes on.

Nothing is looked at but the files on the way, each once, so a name is found in a large repository as soon as
in a small one.
"""

from __future__ import annotations

from collections.abc import Sequence

from cleveragents.application.ports.code_index import CodeSnapshot
from cleveragents.application.ports.context import CancelSignal
from cleveragents.domain.code import FileAnalysis, Import
from cleveragents.infrastructure.context.path_ends import PathEnds

__all__ = ["ImportGraph", "imported_by"]

_DEPTH = 6
_MOST_FILES = 400
_STAR = "*"


class ImportGraph:
    """Not thread-safe: use it in the call that made it."""

    def __init__(self, code: CodeSnapshot, ends: PathEnds) -> None:
        self._code = code
        self._ends = ends
        self._documents = {file.path: file.document for file in code.files}
        self._analyses: dict[int, FileAnalysis | None] = {}

    def load(self, paths: Sequence[str]) -> None:
        """Has these ready, which costs less at once than one by one."""
        documents = [self._documents[path] for path in paths if path in self._documents]
        missing = [document for document in documents if document not in self._analyses]
        self._analyses.update(dict.fromkeys(missing))
        self._analyses.update(self._code.analyses(missing))

    def analysis(self, path: str) -> FileAnalysis | None:
        document = self._documents[path]
        if document not in self._analyses:
            if len(self._analyses) >= _MOST_FILES:  # guard: a chain of re-exports may lead anywhere
                return None
            self.load([path])
        return self._analyses[document]

    def modules(self, name: str, importer: str = "") -> list[str]:
        """The files that a module's name means where `importer` writes it; several if that is not certain."""
        name = name.strip("\"'")
        if name.startswith("."):
            return self._relative(name, importer)
        if "/" in name:
            return self._ends.files_of(name.split("/"))
        parts = [part for part in name.replace("::", ".").split(".") if part not in ("crate", "self")]
        return self._ends.files_of(parts, near=importer) if parts else []

    def _relative(self, name: str, importer: str) -> list[str]:
        directory = importer.split("/")[:-1]
        if "/" in name:
            for part in name.split("/"):
                if part == "..":
                    directory = directory[:-1]
                elif part != ".":
                    directory = [*directory, part]
            return self._ends.exactly(directory)
        rest = name.lstrip(".")
        up = len(name) - len(rest) - 1
        if up > len(directory):
            return []
        return self._ends.exactly([*directory[: len(directory) - up], *(rest.split(".") if rest else [])])

    def definers(self, path: str, name: str, depth: int = _DEPTH) -> list[str]:
        """The files that define what `path` calls `name`: itself, or where it has it from."""
        analysis = self.analysis(path)
        if analysis is None or depth == 0:
            return []
        if any(one.parent is None and one.name == name for one in analysis.definitions):
            return [path]
        for imported in analysis.imports:
            for original, local in imported.names:
                if local == name:
                    return self.targets(path, Import(imported.module, ((original, local),)), depth)
        stars = [one for one in analysis.imports if any(original == _STAR for original, _ in one.names)]
        for imported in stars:
            for module in self.modules(imported.module, path):
                if module != path and (found := self.definers(module, name, depth - 1)):
                    return found
        return []

    def targets(self, path: str, imported: Import, depth: int = _DEPTH) -> list[str]:
        """The files that an import of `path` really takes something from."""
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
        """The files that define what a dotted name means: its longest beginning that is a module is followed
        by the name of what that defines or passes on."""
        parts = name.replace("::", ".").split(".")
        for end in range(len(parts), 0, -1):
            modules = self._ends.files_of(parts[:end])
            if modules:
                if end == len(parts):
                    return modules
                return [path for one in modules for path in (self.definers(one, parts[end]) or [one])]
        return []


_MOST_IMPORTS = 200
_MOST_TARGETS = 60


def imported_by(
    graph: ImportGraph, sources: Sequence[tuple[str, float]], cancelled: CancelSignal
) -> dict[str, float]:
    """What these files import, each sharing its worth among all that it imports."""
    graph.load([path for path, _ in sources])
    scores: dict[str, float] = {}
    for path, worth in sources:
        analysis = graph.analysis(path)
        if analysis is None or cancelled.is_cancelled:
            continue
        imports = analysis.imports[:_MOST_IMPORTS]
        targets = {target for one in imports for target in graph.targets(path, one)} - {path}
        for target in sorted(targets)[:_MOST_TARGETS]:
            scores[target] = scores.get(target, 0.0) + worth / (3 + len(targets)) ** 0.5
    return scores
