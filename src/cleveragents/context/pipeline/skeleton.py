"""An outline of a repository, in as many lines as there is room for.

Every directory is one line with its number of files. Expanding a directory replaces that line by a line for
each entry. Directories on the path to the best files are expanded first, then the largest ones. Directories
that do not fit stay collapsed, so the outline of any tree fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from cleveragents.context.code_index import CodeSnapshot
from cleveragents.context.context_parts import CountTokens
from cleveragents.context.model.context import Ranking
from cleveragents.context.pipeline.renderings import printable

__all__ = ["TreeSkeleton"]

_HEADING: Final = "Files of the repository:"
_REST: Final = "(9999 more files)"
_BEST: Final = 20
_MOST_OPENED: Final = 200


@dataclass(slots=True)
class _Directory:
    path: str
    files: list[str] = field(default_factory=list)
    below: dict[str, _Directory] = field(default_factory=dict)
    total: int = 0
    opened: bool = False
    """Whether all directories in it are shown."""
    shown: list[str] = field(default_factory=list)
    """Names of the files and directories in it that are shown."""


class TreeSkeleton:
    """A `Skeleton` with a tree of directories and files, collapsed where it does not fit. Immutable."""

    def draw(self, code: CodeSnapshot, ranking: Ranking, tokens: int, count: CountTokens) -> str:
        root = _tree(file.path for file in code.files)
        if root.total == 0:
            return ""
        best = [place.path for place in ranking.files[:_BEST]]
        drawing = _Drawing(root, tokens, count)
        for path in best:
            drawing.reveal(path)
        drawing.open_largest()
        return drawing.fitted()


class _Drawing:
    """One drawing. Not thread-safe: created and used by one call."""

    def __init__(self, root: _Directory, tokens: int, count: CountTokens) -> None:
        self._root = root
        self._count = count
        self._tokens = tokens
        self._spent = count(_HEADING) + self._cost(_closed(root, ""))

    def reveal(self, path: str) -> None:
        """Show the path and its directories if there is room."""
        *steps, name = path.split("/")
        way = [self._root]
        for step in steps:
            child = way[-1].below.get(step)
            if child is None:
                return
            way.append(child)
        if name not in way[-1].files:
            return
        entries = [*zip(way, steps, strict=False), (way[-1], name)]
        new = [(depth, *entry) for depth, entry in enumerate(entries) if entry[1] not in entry[0].shown]
        lines = [
            _closed(parent.below[entry], "  " * depth) if parent.below.get(entry) else "  " * depth + entry
            for depth, parent, entry in new
        ]
        # A partly shown directory needs a line with the number of its other files.
        lines.extend("  " * depth + _REST for depth, parent, _ in new if not parent.shown)
        if self._affords(sum(self._cost(line) for line in lines)):
            for _, parent, entry in new:
                parent.shown.append(entry)

    def open_largest(self) -> None:
        """Expand the remaining directories, the shallowest first, and of these the largest."""
        waiting: list[tuple[int, int, str, _Directory]] = []
        heappush(waiting, (0, -self._root.total, "", self._root))
        for _ in range(_MOST_OPENED):
            if not waiting:
                return
            depth, _, _, directory = heappop(waiting)
            self._show_files(directory, depth)
            if directory.opened or self._open(directory):
                for child in directory.below.values():
                    heappush(waiting, (depth + 1, -child.total, child.path, child))

    def fitted(self) -> str:
        """Return the text of as many lines as fit into the tokens."""
        lines = [_HEADING, *_lines(self._root, 0)]
        while len(lines) > 1:
            text = "\n".join(lines)
            over = self._count(text) - self._tokens
            if over <= 0:  # guard: it never takes more than its share
                return text
            # A line has at least two tokens, so a few iterations suffice.
            lines = lines[: max(1, len(lines) - max(1, over // 8))]
        return ""

    def _show_files(self, directory: _Directory, depth: int) -> None:
        left = [name for name in directory.files if name not in directory.shown]
        if not left:
            return
        cost = sum(self._cost("  " * depth + name) for name in left[:_MOST_OPENED])
        if len(left) <= _MOST_OPENED and (directory.opened or self._open(directory)) and self._affords(cost):
            directory.shown.extend(left)

    def _open(self, directory: _Directory) -> bool:
        depth = directory.path.count("/") + 1 if directory.path else 0
        if len(directory.below) > _MOST_OPENED:
            return False
        new = [name for name in directory.below if name not in directory.shown]
        lines = [_closed(directory.below[name], "  " * depth) for name in new]
        if not self._affords(sum(self._cost(line) for line in lines)):
            return False
        directory.opened = True
        directory.shown.extend(new)
        return True

    def _affords(self, cost: int) -> bool:
        if self._spent + cost > self._tokens:
            return False
        self._spent += cost
        return True

    def _cost(self, line: str) -> int:
        return self._count(line) + 1


def _tree(paths: Iterable[str]) -> _Directory:
    root = _Directory("")
    found: dict[str, _Directory] = {"": root}
    for path in paths:
        parent, _, name = path.rpartition("/")
        _directory(parent, found).files.append(name)
    for path in sorted(found, key=len, reverse=True):
        directory = found[path]
        directory.total += len(directory.files)
        if path:
            found[path.rpartition("/")[0]].total += directory.total
    return root


def _directory(path: str, found: dict[str, _Directory]) -> _Directory:
    """Return the directory, created with its parents if necessary."""
    made: list[_Directory] = []
    while path not in found:
        made.append(_Directory(path))
        found[path] = made[-1]
        path = path.rpartition("/")[0]
    parent = found[path]
    for directory in reversed(made):
        parent.below[directory.path.rpartition("/")[2]] = directory
        parent = directory
    return parent


def _closed(directory: _Directory, indent: str) -> str:
    name = printable(directory.path.rpartition("/")[2])
    files = "1 file" if directory.total == 1 else f"{directory.total} files"
    return f"{indent}{name}/ ({files})"


def _lines(directory: _Directory, depth: int) -> list[str]:
    indent = "  " * depth
    lines: list[str] = []
    hidden = directory.total
    for name in sorted(directory.shown):
        child = directory.below.get(name)
        hidden -= 1 if child is None else child.total
        if child is None:
            lines.append(f"{indent}{printable(name)}")
            continue
        lines.append(_closed(child, indent))
        if child.shown:
            lines.extend(_lines(child, depth + 1))
    if hidden:
        more = "1 more file" if hidden == 1 else f"{hidden} more files"
        lines.append(f"{indent}({more})")
    return lines
