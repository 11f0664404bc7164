"""Orphaned sandboxes after crashes, deleted databases or manual changes, and which of them may be removed.

Only sandboxes that are certainly ours, unused and without work are removed. All others are reported with a
remedy: a directory that looks abandoned may be in use by another state directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from cleveragents.core.errors import GitFailed, SandboxBusy, SandboxMissing, ToolRefused
from cleveragents.git.user_repository import pinned_in
from cleveragents.sandboxes.facts import SandboxLayout
from cleveragents.sandboxes.lock import is_locked, locked
from cleveragents.sandboxes.rows import READY, SandboxRow
from cleveragents.storage.files.paths import remove_all

__all__ = ["MIRRORS", "SandboxOrphan", "find_orphans", "is_copy", "remove_orphans"]

MIRRORS = "mirrors"
"""The directory of git mirrors, beside the directory of sandboxes."""

_OURS = frozenset({"lock", "tree", "engine", "sandbox.json.new"})
_YOUNG_SECONDS = 3600.0


class SandboxOrphan(Struct, frozen=True):
    """An orphan. `kind` is row, directory, copy or pin. `removable`: `remove_orphans` removes it; otherwise
    `advice` is the remedy.
    """

    kind: str
    plan_id: str
    location: str
    reason: str
    removable: bool
    advice: str = ""


class _Registry(Protocol):
    @property
    def directory(self) -> Path: ...

    def rows(self) -> Sequence[SandboxRow]: ...

    def taken_over(self) -> frozenset[str]: ...

    def remove(self, plan_id: str) -> None: ...


def find_orphans(registry: _Registry, now: datetime, resources: Iterable[Path] = ()) -> list[SandboxOrphan]:
    """Return the orphans among all rows, all directories, and the pins in `resources`. Changes nothing."""
    # Directories first: a sandbox created meanwhile then already has its row.
    directories = _directories(registry.directory)
    known = {row.plan_id: row for row in registry.rows()}
    elsewhere = registry.taken_over()
    found = list(_rows(known.values()))
    for path in directories:
        if path.name in elsewhere or (path.name not in known and is_copy(path)):
            found += _copy(path)
        elif path.name not in known:
            with suppress(FileNotFoundError):  # its row and then the directory were removed meanwhile
                found += _directory(path, now)
    for resource in resources:
        found += _pins(resource, set(known))
    return found


def remove_orphans(registry: _Registry, now: datetime) -> list[SandboxOrphan]:
    """Remove the removable orphans, and return them."""
    removed: list[SandboxOrphan] = []
    for left in find_orphans(registry, now):
        if not left.removable:
            continue
        try:
            if left.kind == "row":
                registry.remove(left.plan_id)
            else:
                _remove_directory(registry, Path(left.location))
        except (SandboxBusy, SandboxMissing, FileNotFoundError):
            # Another process was faster; it is no longer an orphan.
            continue
        removed.append(left)
    return removed


def _rows(known: Iterable[SandboxRow]) -> Iterator[SandboxOrphan]:
    for row in known:
        place = SandboxLayout(row.directory)
        if is_locked(place.lock):
            continue
        if row.state != READY:
            reason = f"the process that made the sandbox died in state {row.state!r}"
        elif place.facts_file.exists():
            continue
        elif place.tree.exists():  # guard: it was complete once, and may hold work
            advice = "check the files in the sandbox, then delete the directory"
            reason = "the sandbox is damaged, but its files still exist"
            yield SandboxOrphan(
                "row", row.plan_id, str(row.directory), reason, removable=False, advice=advice
            )
            continue
        else:
            reason = "the directory of the sandbox is gone"
        yield SandboxOrphan("row", row.plan_id, str(row.directory), reason, removable=True)


def _directories(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir() and not path.is_symlink())
    except FileNotFoundError:
        return []


def _directory(path: Path, now: datetime) -> Iterator[SandboxOrphan]:
    if is_locked(SandboxLayout(path).lock):
        return
    if _is_remnant(path, now):
        yield SandboxOrphan("directory", path.name, str(path), "the sandbox is incomplete", removable=True)
    elif SandboxLayout(path).facts_file.exists():
        reason = "a complete sandbox that is not in this database"
        advice = (
            "the sandbox may belong to another state directory, or hold work; check its files, then "
            "delete the directory"
        )
        yield SandboxOrphan("directory", path.name, str(path), reason, removable=False, advice=advice)
    elif _is_old(path, now):
        advice = "delete the directory if you do not need it"
        yield SandboxOrphan(
            "directory", path.name, str(path), "not a sandbox", removable=False, advice=advice
        )


def _copy(path: Path) -> Iterator[SandboxOrphan]:
    """Yield `path` as a removable copy of another machine's sandbox; its changes are in the database."""
    if not is_locked(SandboxLayout(path).lock):
        reason = "the sandbox of the plan is or was on another machine"
        yield SandboxOrphan("copy", path.name, str(path), reason, removable=True)


def is_copy(path: Path) -> bool:
    """Return whether `path` is a sandbox of a mirror's checkout, for a plan on a remote."""
    with suppress(SandboxMissing):
        facts = SandboxLayout(path).read_facts(path.name)
        return Path(facts.resource).is_relative_to(path.parent.parent / MIRRORS)
    return False


def _is_remnant(path: Path, now: datetime) -> bool:
    """Return whether `path` is the remnant of an incomplete sandbox, in which no command can have run."""
    return _is_old(path, now) and {entry.name for entry in path.iterdir()} <= _OURS


def _is_old(path: Path, now: datetime) -> bool:
    return now.timestamp() - path.lstat().st_mtime > _YOUNG_SECONDS


def _pins(resource: Path, known: set[str]) -> list[SandboxOrphan]:
    try:
        directory, pins = pinned_in(resource)
    except (GitFailed, ToolRefused):
        return []
    return [
        SandboxOrphan(
            "pin",
            plan_id,
            str(directory),
            "the ref keeps the base of a sandbox that is not in this database",
            removable=False,
            advice=f"git update-ref -d refs/cleveragents/base/{plan_id}",
        )
        for plan_id in pins
        if plan_id not in known
    ]


def _remove_directory(registry: _Registry, path: Path) -> None:
    place = SandboxLayout(path)
    if not place.lock.exists():
        place.lock.touch()
    with locked(place.lock, path.name):
        made_meanwhile = any(row.plan_id == path.name for row in registry.rows())
        copied = path.name in registry.taken_over() or is_copy(path)
        needed = place.facts_file.exists() and not copied
        if made_meanwhile or needed:  # guard: never remove what became a sandbox meanwhile
            raise SandboxBusy(path.name)
        remove_all(path)
