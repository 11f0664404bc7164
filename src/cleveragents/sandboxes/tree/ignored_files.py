"""Ignored files in a sandbox: copied into it, made by its setup, or created later by steps.

No ignored file is ever applied. Files copied from the user and files of the setup (a virtual environment) are
expected. All other ignored files were created by a step, and are not applied. Only the names of expected
files are recorded: a step's changes to their content, or inside a directory of the setup, are not detected.

A request can name ignored files to copy. A repository may propose some in a file `.worktreeinclude`. Ignored
files are often secrets, so the proposal counts only if the caller trusts it and adds it to the request.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cleveragents.git.git_directory import flush
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes.ports import SandboxRequest, Unapplied
from cleveragents.storage.files.file_copy import copy_entry
from cleveragents.storage.files.paths import DirectoryCursor, directory_of

if TYPE_CHECKING:
    from cleveragents.sandboxes.facts import SandboxLayout
    from cleveragents.sandboxes.tree.index import SandboxTree

__all__ = ["WORKTREE_INCLUDE", "IgnoredFiles", "bring_included", "patterns_in"]


WORKTREE_INCLUDE = ".worktreeinclude"


class IgnoredFiles(Struct, frozen=True):
    """The ignored files of one sandbox; directories end in a slash. Stateless, so any thread may share it."""

    tree: SandboxTree
    durable: bool = False

    @property
    def place(self) -> SandboxLayout:
        return self.tree.place

    def every_file(self) -> list[str]:
        """Return every ignored file, without collapsing directories."""
        return sorted(_without(self.place.tree, self._entries(), set(), whole=False))

    def made(self, recorded: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the ignored files that are neither expected nor `recorded`, as whole directories where
        possible. Runs git once.
        """
        return self.unapplied(recorded).ignored

    def unapplied(self, recorded: Iterable[str] = ()) -> Unapplied:
        """Like `made`, with the directories that have or had a `.git`, and half-removed submodules."""
        found = self.tree.survey(self.place.index)[0]
        brought, _ = self._brought()
        made = sorted(_without(self.place.tree, found.ignored, {*brought, *recorded}))
        with DirectoryCursor(self.place.tree) as cursor:
            noted = [path for path in self._noted_repositories() if cursor.open(path) is not None]
        repositories = tuple(dict.fromkeys([*found.repositories, *noted]))
        return Unapplied(tuple(made), repositories, tuple(sorted(self.tree.half_removed_submodules())))

    def note_repositories(self, paths: Iterable[str]) -> None:
        """Record that a `.git` was removed from these directories."""
        known = self._noted_repositories()
        noted = sorted({*known, *paths})
        if noted != known:
            self._write(self.place.repositories, noted)

    def bring(self, entries: Iterable[str], *, set_up: bool = False) -> None:
        """Record these entries as expected."""
        brought, _ = self._brought()
        self._write(self.place.brought, {"entries": sorted({*brought, *entries}), "set_up": set_up})

    def count_as_set_up(self) -> None:
        """Record all ignored files as expected. Later calls have no effect, because later files come from
        steps.
        """
        _, set_up = self._brought()
        if not set_up:  # guard: a resumed plan would count files of its steps
            self.bring(self.made(), set_up=True)

    def _brought(self) -> tuple[frozenset[str], bool]:
        try:
            facts = json.loads(self.place.brought.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return frozenset(), False
        return frozenset(facts["entries"]), bool(facts["set_up"])

    def _noted_repositories(self) -> list[str]:
        try:
            return list(json.loads(self.place.repositories.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return []

    def _write(self, path: Path, facts: object) -> None:
        draft = self.place.scratch(path.stem)
        draft.write_text(json.dumps(facts), encoding="utf-8")
        if self.durable:
            flush(draft)
        draft.replace(path)

    def _entries(self) -> list[str]:
        return self.tree.survey(self.place.index)[0].ignored


def _without(root: Path, entries: Iterable[str], kept: set[str], *, whole: bool = True) -> Iterator[str]:
    """Yield the entries that are not kept. A directory that contains a kept entry is replaced by its other
    entries; without `whole`, every directory is replaced by its entries.
    """
    holders = {directory for path in kept for directory in _above(path)}
    waiting = [entry for entry in entries if kept.isdisjoint(_above(entry))]
    with DirectoryCursor(root) as cursor:
        while waiting:
            entry = waiting.pop()
            if entry in holders or (entry.endswith("/") and not whole):
                waiting += _held_by(cursor, entry)
            elif entry not in kept:
                yield entry


def _held_by(cursor: DirectoryCursor, entry: str) -> list[str]:
    """Return the entries of a directory; empty if it is gone."""
    descriptor = cursor.open(entry.rstrip("/"))
    if descriptor is None:
        return []
    with os.scandir(descriptor) as found:
        return [entry + child.name + _slash(child) for child in found]


def _slash(child: os.DirEntry[str]) -> str:
    return "/" if child.is_dir(follow_symlinks=False) else ""


def _above(path: str) -> list[str]:
    """Return the parent directories of a path."""
    parts = path.rstrip("/").split("/")
    return ["/".join(parts[:count]) + "/" for count in range(1, len(parts))]


def patterns_in(content: bytes) -> tuple[str, ...]:
    """Return the patterns of a trusted `.worktreeinclude`, in .gitignore syntax."""
    return tuple(os.fsdecode(line) for line in content.splitlines())


def bring_included(request: SandboxRequest, place: SandboxLayout) -> tuple[list[str], list[str]]:
    """Copy the requested ignored files; being ignored, they are not recorded. Return the copied paths, and
    notes on the others.
    """
    patterns = os.fsencode("\n".join(request.include))
    if not patterns.strip():
        return [], []
    named = _ignored_and_named(request.resource, place, patterns)
    left = [path for path in named if not _copy(request.resource, place.tree, path)]
    came = sorted({*named} - {*left})
    return came, [f"ignored files that could not be copied: {', '.join(left)}"] if left else []


def _ignored_and_named(resource: Path, place: SandboxLayout, patterns: bytes) -> list[str]:
    engine = PrivateRepository(place.engine)
    chosen = place.scratch("include")
    chosen.write_bytes(patterns)
    options = ("-z", "--others", "--ignored", f"--exclude-from={chosen}")
    named = engine.git("ls-files", *options, work_tree=resource, index=place.index)
    chosen.unlink()
    # An untracked file that is not ignored would be recorded as a change of the plan. So would a file that
    # only the user's current rules ignore, but not those in the sandbox's base.
    for rules in (resource, place.tree):
        named = engine.git(
            "check-ignore",
            "-z",
            "--stdin",
            work_tree=rules,
            index=place.index,
            feed=named,
            succeeds=(0, 1),
        )
    return [path for path in os.fsdecode(named).split("\0")[:-1] if not path.endswith("/")]


def _copy(resource: Path, tree: Path, path: str) -> bool:
    with directory_of(resource, path) as source, directory_of(tree, path, make=True) as target:
        if source is None or target is None:
            return False
        return not copy_entry(source[0], target[0], source[1])
