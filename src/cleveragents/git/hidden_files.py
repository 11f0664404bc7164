"""Files that an index tells git not to look at: assume-unchanged, skip-worktree and sparse checkouts.

git takes such a file for what the index has, whatever its content is. We take the file that is there: only a
file that is not checked out is what the index has.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cleveragents.git.plumbing import PrivateRepository

__all__ = ["LISTING", "HiddenFiles", "hidden_files", "marked_in", "reveal"]

LISTING = ("ls-files", "-v", "-z")
"""The git command whose output `marked_in` reads."""

_SKIPPED = "S"


@dataclass(frozen=True, slots=True)
class HiddenFiles:
    """`assumed` are marked assume-unchanged; `present` are marked skip-worktree, and are there all the same;
    `absent` are marked skip-worktree, and not checked out."""

    assumed: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def marked_in(listed: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files that are marked assume-unchanged, and those that are marked skip-worktree."""
    entries = [(entry[0], entry[2:]) for entry in os.fsdecode(listed).split("\0")[:-1]]
    assumed = tuple(path for tag, path in entries if tag.islower())
    return assumed, tuple(path for tag, path in entries if tag.upper() == _SKIPPED)


def hidden_files(repository: PrivateRepository, work_tree: Path, index: Path) -> HiddenFiles:
    """What the index hides of the work tree."""
    assumed, skipped = marked_in(repository.git(*LISTING, index=index))
    present = {path for path in skipped if _is_there(work_tree, path)}
    return HiddenFiles(
        assumed,
        tuple(path for path in skipped if path in present),
        tuple(path for path in skipped if path not in present),
    )


def reveal(repository: PrivateRepository, work_tree: Path, index: Path) -> HiddenFiles:
    """Takes the marks from every file that is there, in an index of the caller's own, and returns what was
    hidden by them."""
    hidden = hidden_files(repository, work_tree, index)
    for option, paths in (
        ("--no-assume-unchanged", hidden.assumed),
        ("--no-skip-worktree", hidden.present),
    ):
        if paths:
            feed = b"".join(os.fsencode(path) + b"\0" for path in paths)
            repository.git(
                "update-index", option, "-z", "--stdin", work_tree=work_tree, index=index, feed=feed
            )
    return hidden


def _is_there(work_tree: Path, path: str) -> bool:
    """Whether something is at the path, and not behind a link."""
    return os.path.lexists(work_tree / path) and not any(
        (work_tree / parent).is_symlink() for parent in PurePosixPath(path).parents[:-1]
    )
