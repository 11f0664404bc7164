"""Refuses a result that makes a directory a git directory, or changes one.

git takes a directory with `HEAD`, `objects` and `refs`, or with `HEAD` and `commondir`, for a git directory,
whatever it is called, and runs programs that its configuration names. Whoever then types `git status` there,
or in a directory below, would run what a plan has written.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol
from unicodedata import normalize

from cleveragents.apply.merge import Merge
from cleveragents.core.change import Difference
from cleveragents.core.errors import ApplyRefused
from cleveragents.core.errors.remedy import Remedy
from cleveragents.core.text.control_characters import IGNORED_BY_HFS
from cleveragents.git.plumbing import PrivateRepository

__all__ = ["ensure_no_git_directory"]

# Folded: some file systems do not tell them from other spellings.
_FILES = frozenset({"head", "config", "config.worktree", "commondir"})
_DIRECTORIES = frozenset({"objects", "refs", "hooks"})
_MOST_NAMED = 5


class _IsThere(Protocol):
    """Whether something is at a path afterwards; `as_file`: and no directory."""

    def __call__(self, path: str, *, as_file: bool = False) -> bool: ...


def ensure_no_git_directory(
    plan_id: str, repository: PrivateRepository, merge: Merge, resource: Path | None = None
) -> None:
    """`ApplyRefused` if a directory would be a git directory afterwards, and the merge writes a part of it.

    `resource` has the user's files: some of them are in no tree, such as empty directories.
    """
    touched = _touched(merge.changes)
    if not touched:
        return
    listed = _listed(repository, merge.merged)
    gone = {path for path, change in merge.changes.items() if change.after is None}

    def is_there(path: str, *, as_file: bool = False) -> bool:
        kind = listed.get(_folded(path))
        if kind is not None:
            return kind != "tree" or not as_file
        return resource is not None and _stays(resource, path, gone, as_file=as_file)

    found = [directory for directory in sorted(touched) if _is_git_directory(directory, is_there)]
    if found:
        named = ", ".join(directory or "." for directory in found[:_MOST_NAMED])
        reason = f"it would write to a git directory, whose configuration can run programs: {named}"
        paths = [path for directory in found for path in ([directory] if directory else sorted(touched[""]))]
        review = [Remedy("plan.review", plan_id, {"reject": path}, "Leave it out") for path in paths]
        raise ApplyRefused(plan_id, reason, remedies=tuple(review[:_MOST_NAMED]))


def _touched(changes: Mapping[str, Difference]) -> dict[str, list[str]]:
    """The directories that get something which a git directory has, with the paths of that."""
    touched: dict[str, list[str]] = {}
    for path, change in changes.items():
        parts = path.split("/")
        for number, part in enumerate(parts if change.after is not None else ()):
            name = _folded(part)
            if name in _DIRECTORIES or (number == len(parts) - 1 and name in _FILES):
                touched.setdefault("/".join(parts[:number]), []).append(path)
    return touched


def _is_git_directory(directory: str, is_there: _IsThere) -> bool:
    before = f"{directory}/" if directory else ""
    if not is_there(f"{before}HEAD", as_file=True):
        return False
    return is_there(f"{before}commondir") or (is_there(f"{before}objects") and is_there(f"{before}refs"))


def _folded(path: str) -> str:
    """The path as a file system without letter case compares it; some ignore characters of no width, too."""
    return normalize("NFC", path).translate(IGNORED_BY_HFS).casefold()


def _listed(repository: PrivateRepository, tree: str) -> dict[str, str]:
    """Every path of a tree, folded, with its kind; directories are a `tree`."""
    said = repository.git("ls-tree", "-r", "-t", "-z", "--full-tree", tree)
    rows = (line.partition("\t") for line in os.fsdecode(said).split("\0")[:-1])
    return {_folded(path): about.split(" ")[1] for about, _, path in rows}


def _stays(resource: Path, path: str, gone: Collection[str], *, as_file: bool) -> bool:
    """Whether something of the user's is there that the merge does not take away."""
    place = resource / path
    if path in gone or not os.path.lexists(place):
        return False
    if as_file:
        return place.is_symlink() or not place.is_dir()
    if not any(other.startswith(f"{path}/") for other in gone):
        return True
    files = (Path(folder, name) for folder, _, names in os.walk(place) for name in names)
    return any(str(file.relative_to(resource)) not in gone for file in files)
