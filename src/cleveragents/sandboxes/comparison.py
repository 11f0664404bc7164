"""Compare the results of plans whose content is in different sandboxes.

The comparison uses a temporary git directory that borrows the objects of both sandboxes, so it changes
nothing in them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from cleveragents.core.change import GITLINK, Difference, FileState
from cleveragents.core.errors import SandboxRefused
from cleveragents.git.git_directory import GitDirectory
from cleveragents.git.plumbing import PrivateRepository, raw_change
from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = [
    "FILES_AND_LINES",
    "ChangedFile",
    "ResultTree",
    "bytes_between",
    "changed_between",
    "changed_files",
    "diff_between",
]

FILES_AND_LINES = ("--raw", "--numstat", "--no-renames", "--no-abbrev", "--ignore-submodules=none", "-z")
"""Options of `git diff` for `changed_files`. A `.gitmodules` file may tell git to ignore submodules."""


class ResultTree(Struct, frozen=True):
    """The result of a plan: the name of a tree, and the sandbox that stores it."""

    sandbox: Sandbox
    tree: str


class ChangedFile(Struct, frozen=True):
    """A file that differs between two trees. `added` and `removed` count lines, None for binary files. The
    state of a file is None in a tree that does not contain it.
    """

    path: str
    added: int | None
    removed: int | None
    before: FileState | None
    after: FileState | None


def diff_between(
    one: ResultTree, other: ResultTree, *, options: Sequence[str] = (), paths: Sequence[str] = ()
) -> bytes:
    """Return git's diff between two trees. Raises `SandboxRefused` if they cannot be compared."""
    with _borrowing(one, other) as repository:
        return repository.git(
            "--literal-pathspecs",
            "-c",
            "core.quotePath=false",  # show names unescaped
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            *options,
            one.tree,
            other.tree,
            "--",
            *paths,
        )


def changed_between(one: ResultTree, other: ResultTree, paths: Sequence[str] = ()) -> list[ChangedFile]:
    """Return every file that differs, ordered by path."""
    return changed_files(diff_between(one, other, options=FILES_AND_LINES, paths=paths))


def changed_files(diff: bytes) -> list[ChangedFile]:
    """Return the files of a diff with the options `FILES_AND_LINES`, ordered by path."""
    fields = iter(os.fsdecode(diff).split("\0")[:-1])
    states: dict[str, Difference] = {}
    found: list[ChangedFile] = []
    for entry in fields:
        if entry.startswith(":"):
            states[next(fields)] = raw_change(entry)
            continue
        added, removed, path = entry.split("\t", 2)
        step = states[path]
        found.append(ChangedFile(path, _lines(added), _lines(removed), step.before, step.after))
    return sorted(found, key=lambda changed: changed.path)


def bytes_between(one: ResultTree, other: ResultTree, files: Sequence[ChangedFile]) -> int:
    """Return the total size of the differing contents on both sides; equal content counts once."""
    states = [state for changed in files for state in (changed.before, changed.after) if state is not None]
    names = {state.content for state in states if state.mode != GITLINK}
    feed = "".join(f"{name}\n" for name in sorted(names)).encode("ascii")
    with _borrowing(one, other) as repository:
        told = repository.git("cat-file", "--batch-check=%(objectsize)", feed=feed)
    return sum(map(int, told.split()))


@contextmanager
def _borrowing(one: ResultTree, other: ResultTree) -> Iterator[PrivateRepository]:
    sandboxes = (one.sandbox, other.sandbox)
    formats = {sandbox.facts.object_format for sandbox in sandboxes}
    if len(formats) > 1:
        reason = f"{other.sandbox.root} uses another git object format"
        raise SandboxRefused(str(one.sandbox.root), f"cannot compare: {reason}")
    stores = dict.fromkeys(sandbox.place.engine / "objects" for sandbox in sandboxes)
    with tempfile.TemporaryDirectory(prefix="cleveragents-") as scratch:
        directory = Path(scratch, "both")
        GitDirectory(object_format=formats.pop(), borrowed=tuple(stores)).write(directory)
        yield PrivateRepository(directory)


def _lines(number: str) -> int | None:
    return None if number == "-" else int(number)
