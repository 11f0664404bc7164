"""Ignored files in a sandbox: which of them came with it, and which were made there since.

No ignored file is ever applied. Those that came with the sandbox are the user's own, or what its setup made
(a virtual environment); whatever else is there, a step made, and the user will not have it. Only the names of
what came are kept: what a step did to the content of such a file, or inside a directory that the setup made,
is not told apart from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cleveragents.infrastructure.git.durability import flush
from cleveragents.infrastructure.git.plumbing import PrivateRepository
from cleveragents.infrastructure.sandbox.facts import SandboxPlace

__all__ = ["IgnoredFiles"]


@dataclass(frozen=True, slots=True)
class IgnoredFiles:
    """Those of one sandbox; directories end in a slash. Stateless, so any thread may share it."""

    place: SandboxPlace
    engine: PrivateRepository
    durable: bool = False

    def every_file(self) -> list[str]:
        """All there are, file by file."""
        return self._listed()

    def made(self, recorded: Iterable[str] = ()) -> tuple[str, ...]:
        """What did not come with the sandbox, and is not `recorded` either: whole directories where nothing
        else is in them. One git call."""
        brought, _ = self._brought()
        return tuple(sorted(_without(self.place.tree, self._entries(), {*brought, *recorded})))

    def bring(self, entries: Iterable[str], *, set_up: bool = False) -> None:
        """Counts these as having come with it."""
        brought, _ = self._brought()
        facts = {"entries": sorted({*brought, *entries}), "set_up": set_up}
        draft = self.place.scratch("brought")
        draft.write_text(json.dumps(facts), encoding="utf-8")
        if self.durable:
            flush(draft)
        draft.replace(self.place.brought)

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

    def _entries(self) -> list[str]:
        listed = self._listed("--directory")
        # git names some directories and what is in them.
        known = frozenset(listed)
        return [entry for entry in listed if known.isdisjoint(_above(entry))]

    def _listed(self, *options: str) -> list[str]:
        standard = ("--others", "--ignored", "--exclude-standard", "-z")
        place = self.place
        listed = self.engine.git("ls-files", *standard, *options, work_tree=place.tree, index=place.index)
        return os.fsdecode(listed).split("\0")[:-1]


def _without(root: Path, entries: Iterable[str], kept: set[str]) -> Iterator[str]:
    """The entries, less those that are kept; a directory that holds such is taken apart."""
    holders = {directory for path in kept for directory in _above(path)}
    waiting = [entry for entry in entries if kept.isdisjoint(_above(entry))]
    while waiting:
        entry = waiting.pop()
        if entry in holders:
            # Who only looks does not hold it still: what was listed may be gone.
            with suppress(FileNotFoundError), os.scandir(root / entry) as found:
                waiting += [entry + child.name + _slash(child) for child in found]
        elif entry not in kept:
            yield entry


def _slash(child: os.DirEntry[str]) -> str:
    return "/" if child.is_dir(follow_symlinks=False) else ""


def _above(path: str) -> list[str]:
    """The directories on the way to it."""
    parts = path.rstrip("/").split("/")
    return ["/".join(parts[:count]) + "/" for count in range(1, len(parts))]
