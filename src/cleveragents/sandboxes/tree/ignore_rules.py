"""Asks git which paths are ignored, without letting it look at the tree that they are in.

git gets the .gitignore files on the way, as bytes that we read, in a directory of ours, and names of paths.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from cleveragents.core.errors import GitFailed, SandboxRefused
from cleveragents.git.plumbing import PrivateRepository, within
from cleveragents.sandboxes.facts import SandboxPlace
from cleveragents.sandboxes.tree.walk import DirectoryCursor, read_bytes
from cleveragents.storage.files.paths import directory_of, remove_all

__all__ = ["ignored_by", "rules_for"]

_IGNORE_FILE = ".gitignore"
_LARGEST_RULES = 1 << 20
# Rules are the command's own, and can take for ever to match.
_SECONDS = 60.0


def ignored_by(
    engine: PrivateRepository,
    place: SandboxPlace,
    paths: Collection[str],
    rules: Mapping[str, bytes],
    *,
    unless_in: Path | None = None,
) -> frozenset[str]:
    """Those of the paths that are ignored; directories end in a slash. `rules` are .gitignore files by path.

    `unless_in` names an index: what it holds is not ignored.
    """
    if not paths:
        return frozenset()
    shadow = place.scratch("rules")
    shadow.mkdir()
    try:
        for path, content in rules.items():
            with directory_of(shadow, path, make=True):
                (shadow / path).write_bytes(content)
        # A file may be called as git calls many; with this before it, no name is anything but a name.
        feed = b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)
        indexed = ("--no-index",) if unless_in is None else ()
        options = ("check-ignore", *indexed, "-z", "--stdin")
        with engine.start(
            *options, work_tree=shadow, index=unless_in, seconds_left=within(_SECONDS)
        ) as running:
            listed = running.finish(feed, succeeds=(0, 1))[0]
    except GitFailed as error:
        reason = f"its .gitignore files cannot be used: git gave no answer within {_SECONDS:.0f} s"
        raise SandboxRefused(str(place.tree), reason) from error
    finally:
        remove_all(shadow)
    return frozenset(name.removeprefix("./") for name in os.fsdecode(listed).split("\0")[:-1])


def rules_for(root: Path, paths: Iterable[str]) -> tuple[list[str], dict[str, bytes]]:
    """The paths, with a slash behind those that are directories now, and the .gitignore files above them."""
    spelled: list[str] = []
    rules: dict[str, bytes] = {}
    seen: set[str] = set()
    with DirectoryCursor(root) as cursor:
        for path in sorted(paths):
            parts = path.split("/")
            for count in range(len(parts)):
                directory = "/".join(parts[:count])
                descriptor = cursor.open(directory)
                if descriptor is None:
                    break
                if directory not in seen:
                    seen.add(directory)
                    content = read_bytes(descriptor, _IGNORE_FILE, at_most=_LARGEST_RULES)
                    if content is not None:
                        rules[f"{directory}/{_IGNORE_FILE}" if directory else _IGNORE_FILE] = content
            spelled.append(path + _slash(cursor, path))
    return spelled, rules


def _slash(cursor: DirectoryCursor, path: str) -> str:
    directory, _, name = path.rpartition("/")
    descriptor = cursor.open(directory)
    if descriptor is None:
        return ""
    try:
        status = os.lstat(name, dir_fd=descriptor)
    except OSError:
        return ""
    return "/" if stat.S_ISDIR(status.st_mode) else ""
