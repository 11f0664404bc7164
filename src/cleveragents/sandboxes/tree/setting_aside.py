"""Moves entries out of a sandbox's files for a while, and back, however often a process is killed over it.

What is moved is written down first, and nothing is copied: until the list is gone, each entry on it is in one
of two places, and whoever comes next brings back what is still in the wrong one.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cleveragents.core.errors import SandboxRefused
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.git.durability import flush
from cleveragents.sandboxes.facts import SandboxPlace
from cleveragents.storage.files.paths import directory_of, remove_all, remove_entry

__all__ = ["SettingAside"]


@dataclass(frozen=True, slots=True)
class SettingAside:
    """For one sandbox. Stateless but for the place; whoever moves anything holds the sandbox's lock.

    Entries are paths below its files; a directory's may end in a slash.
    """

    place: SandboxPlace
    durable: bool = False
    faults: FaultPoints = field(default_factory=NoFaults)

    def entries(self) -> tuple[str, ...]:
        """What is set aside now, or is just coming or going."""
        try:
            return tuple(json.loads(self._list.read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError):
            return ()

    def move(self, entries: Sequence[str]) -> None:
        """None of them is among the files afterwards. `SandboxRefused`: then some may be; `put_back`."""
        if not entries:
            return
        try:
            self._write_down(entries)
            self.faults.reach("sandbox.aside.listed")
            for number, entry in enumerate(entries):
                with directory_of(self.place.tree, entry.rstrip("/")) as found:
                    if found is not None:
                        os.rename(found[1], self._held(number), src_dir_fd=found[0])
        except OSError as error:
            reason = f"what is ignored cannot be set aside for a check ({error.strerror}: {error.filename})"
            raise SandboxRefused(str(self.place.tree), reason) from error
        self.faults.reach("sandbox.aside.moved")

    def put_back(self) -> None:
        """Every entry is where it was, in place of whatever came there meanwhile; one whose way is blocked is
        kept beside the files. Costs nothing if none is set aside."""
        if not self.place.set_aside.is_dir() or not self.place.tree.is_dir():
            return
        for number, entry in enumerate(self.entries()):
            if os.path.lexists(self._held(number)):  # guard: one that was not moved, or is back, stays
                self._return(number, entry.rstrip("/"))
        self.faults.reach("sandbox.aside.returned")
        if any(path.name.isdigit() for path in self.place.set_aside.iterdir()):  # guard: nothing is lost
            self.place.set_aside.rename(self.place.directory / f"aside-{secrets.token_hex(4)}")
        else:
            remove_all(self.place.set_aside)

    def remove(self, entry: str) -> None:
        """Takes an entry away for good."""
        with directory_of(self.place.tree, entry.rstrip("/")) as found:
            if found is not None:
                remove_entry(*found)

    @property
    def _list(self) -> Path:
        return self.place.set_aside / "entries.json"

    def _held(self, number: int) -> Path:
        return self.place.set_aside / str(number)

    def _write_down(self, entries: Sequence[str]) -> None:
        self.place.set_aside.mkdir()
        draft = self._list.with_suffix(".new")
        draft.write_text(json.dumps(list(entries)), encoding="utf-8")
        if self.durable:
            flush(draft)
        draft.replace(self._list)
        if self.durable:
            flush(self.place.set_aside)  # guard: files in a place of which no list tells

    def _return(self, number: int, path: str) -> None:
        with directory_of(self.place.tree, path, make=True) as found:
            if found is not None:
                remove_entry(*found)
                os.rename(self._held(number), found[1], dst_dir_fd=found[0])
