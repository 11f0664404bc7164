"""Ignored files in a sandbox: which of them came with it, and which were made there since.

No ignored file is ever applied. Those that came with the sandbox are the user's own, or what its setup made
(a virtual environment); whatever else is there, a step made, and the user will not have it. Only the names of
what came are kept: what a step did to the content of such a file, or inside a directory that the setup made,
is not told apart from it.

Ignored files that are to come along into a sandbox: those that the request names.

A repository may propose some in a file `.worktreeinclude`. They are often secrets, so the proposal counts
only if whoever makes the request trusts it, and puts it there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cleveragents.git.git_directory import flush
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.sandboxes.ports import SandboxRequest, Unapplied
from cleveragents.sandboxes.tree.index import SandboxTree
from cleveragents.storage.files.file_copy import copy_entry
from cleveragents.storage.files.paths import DirectoryCursor, directory_of

__all__ = ["WORKTREE_INCLUDE", "IgnoredFiles", "bring_included", "patterns_in"]


WORKTREE_INCLUDE = ".worktreeinclude"


@dataclass(frozen=True, slots=True)
class IgnoredFiles:
    """Those of one sandbox; directories end in a slash. Stateless, so any thread may share it."""

    tree: SandboxTree
    durable: bool = False

    @property
    def place(self) -> SandboxLayout:
        return self.tree.place

    def every_file(self) -> list[str]:
        """All there are, file by file."""
        return sorted(_without(self.place.tree, self._entries(), set(), whole=False))

    def made(self, recorded: Iterable[str] = ()) -> tuple[str, ...]:
        """What did not come with the sandbox, and is not `recorded` either: whole directories where nothing
        else is in them. One git call."""
        return self.unapplied(recorded).ignored

    def unapplied(self, recorded: Iterable[str] = ()) -> Unapplied:
        """The same, with the directories in which there is a `.git`, or was one that was removed, and the
        submodules that are removed by half."""
        found = self.tree.survey(self.place.index)[0]
        brought, _ = self._brought()
        made = sorted(_without(self.place.tree, found.ignored, {*brought, *recorded}))
        with DirectoryCursor(self.place.tree) as cursor:
            noted = [path for path in self._noted_repositories() if cursor.open(path) is not None]
        repositories = tuple(dict.fromkeys([*found.repositories, *noted]))
        return Unapplied(tuple(made), repositories, tuple(sorted(self.tree.half_removed_submodules())))

    def note_repositories(self, paths: Iterable[str]) -> None:
        """Remembers that these directories held a `.git`, which was removed."""
        known = self._noted_repositories()
        noted = sorted({*known, *paths})
        if noted != known:
            self._write(self.place.repositories, noted)

    def bring(self, entries: Iterable[str], *, set_up: bool = False) -> None:
        """Counts these as having come with it."""
        brought, _ = self._brought()
        self._write(self.place.brought, {"entries": sorted({*brought, *entries}), "set_up": set_up})

    def count_as_set_up(self) -> None:
        """Counts what is there now as having come with it, once: later there are files of steps."""
        _, set_up = self._brought()
        if not set_up:  # guard: a resumed plan would count what its steps made
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
    """The entries, less those that are kept; a directory that holds such, or each if not `whole`, is taken
    apart."""
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
    """What is in a directory; nothing if it is gone by now."""
    descriptor = cursor.open(entry.rstrip("/"))
    if descriptor is None:
        return []
    with os.scandir(descriptor) as found:
        return [entry + child.name + _slash(child) for child in found]


def _slash(child: os.DirEntry[str]) -> str:
    return "/" if child.is_dir(follow_symlinks=False) else ""


def _above(path: str) -> list[str]:
    """The directories on the way to it."""
    parts = path.rstrip("/").split("/")
    return ["/".join(parts[:count]) + "/" for count in range(1, len(parts))]


def patterns_in(content: bytes) -> tuple[str, ...]:
    """What a trusted `.worktreeinclude` wants brought along, in the syntax of .gitignore."""
    return tuple(os.fsdecode(line) for line in content.splitlines())


def bring_included(request: SandboxRequest, place: SandboxLayout) -> tuple[list[str], list[str]]:
    """Copies them as they are; being ignored, they are not recorded. Returns what came, and notes on what did
    not."""
    patterns = os.fsencode("\n".join(request.include))
    if not patterns.strip():
        return [], []
    named = _ignored_and_named(request.resource, place, patterns)
    left = [path for path in named if not _copy(request.resource, place.tree, path)]
    came = sorted({*named} - {*left})
    return came, [f"ignored files that could not be brought along: {', '.join(left)}"] if left else []


def _ignored_and_named(resource: Path, place: SandboxLayout, patterns: bytes) -> list[str]:
    engine = PrivateRepository(place.engine)
    chosen = place.scratch("include")
    chosen.write_bytes(patterns)
    options = ("-z", "--others", "--ignored", f"--exclude-from={chosen}")
    named = engine.git("ls-files", *options, work_tree=resource, index=place.index)
    chosen.unlink()
    # What is merely untracked is not ignored, and would be recorded as if the plan had made it; so would what
    # only the user's rules of now ignore, and not those that the sandbox began with.
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
