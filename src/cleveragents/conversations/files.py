"""The files of a repository for a conversation: only those that a plan's sandbox would have, and read-only.

Ignored files, such as `.env`, often contain secrets. They are neither listed nor read, not even through a
link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

from cleveragents.core.errors import OutsideSandbox, ToolRefused
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import FoundFile

__all__ = ["RepositoryFiles"]

_READ_ONLY = "a conversation only reads; start a plan to change files"


class RepositoryFiles:
    """`SandboxFiles` over a directory, limited to the files in `sizes` (size in bytes by path).

    Not thread-safe: for one tool call.
    """

    def __init__(self, root: Path, sizes: Mapping[str, int]) -> None:
        self._files = ConfinedFiles(root)
        self._sizes = sizes
        self._directories = {"", *(above for path in sizes for above in _directories_of(path))}

    def read(self, path: str, *, limit_bytes: int | None = None) -> bytes:
        clean = _clean(path)
        if clean not in self._sizes:  # guard: an ignored file may contain secrets
            raise ToolRefused("read", f"{path!r} is not a file of the repository, or git ignores it")
        for name in (*_directories_of(clean), clean):
            if self._files.kind(name) == "symlink":  # guard: a link may lead to an ignored file
                raise OutsideSandbox(path, "is a symbolic link")
        return self._files.read(clean, limit_bytes=limit_bytes)

    def exists(self, path: str) -> bool:
        return self.kind(path) is not None

    def kind(self, path: str) -> str | None:
        clean = _clean(path)
        if clean in self._sizes:
            return self._files.kind(clean)
        return "directory" if clean in self._directories else None

    def write(self, path: str, data: bytes, *, executable: bool | None = None) -> None:
        _refuse("write")

    def delete(self, path: str) -> None:
        _refuse("delete")

    def move(self, source: str, target: str) -> None:
        _refuse("move")

    def walk(self, path: str = "", *, depth: int | None = None) -> Iterator[FoundFile]:
        top = _clean(path)
        if top not in self._directories:
            raise ToolRefused("list", f"{path!r} is not a directory of the repository")
        return self._walk(f"{top}/" if top else "", depth)

    def touched(self) -> tuple[str, ...]:
        return ()

    def _walk(self, prefix: str, depth: int | None) -> Iterator[FoundFile]:
        seen: set[str] = set()
        for path in sorted(self._sizes):
            if not path.startswith(prefix):
                continue
            names = path[len(prefix) :].split("/")
            for length in range(1, min(len(names), depth or len(names)) + 1):
                shown = prefix + "/".join(names[:length])
                if length < len(names) and shown not in seen:
                    seen.add(shown)
                    yield FoundFile(shown, "directory", 0)
            if depth is None or len(names) <= depth:
                yield FoundFile(path, "file", self._sizes[path])


def _refuse(tool: str) -> NoReturn:
    raise ToolRefused(tool, _READ_ONLY)


def _clean(path: str) -> str:
    if path.startswith("/") or "\0" in path:
        raise OutsideSandbox(path, "is not relative to the repository")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise OutsideSandbox(path, "leads out of the repository")
    return "/".join(names)


def _directories_of(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:length]) for length in range(1, len(names))]
