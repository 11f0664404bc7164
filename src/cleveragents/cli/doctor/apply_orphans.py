"""Staging directories of applies that no journal entry refers to any more.

An apply stages its new files in `.git/cleveragents/ID`, or in `.cleveragents-ID` if no git directory is on
the same disk, and keeps the replaced files there. Recovery completes applies with an open journal entry. A
directory without such an entry (its plan was deleted, or a person wrote into it) blocks every further apply.
The directory is removed only if this state directory started the apply and the last commit contains all its
files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.cli.doctor.orphans import NotRemoved, Orphan
from cleveragents.cli.doctor.plan_orphans import all_plans
from cleveragents.core.errors import GitFailed
from cleveragents.core.event import EventType

if TYPE_CHECKING:
    from cleveragents.app.container import Container

__all__ = ["forgotten_asides"]

_NAME = re.compile(r"(?:\.cleveragents-)?([0-9A-HJKMNP-TV-Z]{26})")
_MOST_COMPARED = 200


def forgotten_asides(container: Container) -> Sequence[Orphan]:
    """Return staging directories without an open journal entry, in the resources of all plans."""
    resources = {Path(plan.resource) for plan in all_plans(container)}
    resources |= {row.resource for row in container.plan_parts.sandboxes.rows()}
    applier = container.plan_parts.applier
    return [
        left
        for resource in sorted(resources)
        if resource.is_dir() and not applier.is_busy(str(resource))
        for place in _places(resource)
        for left in _forgotten(container, resource, place)
    ]


def _places(resource: Path) -> list[Path]:
    from cleveragents.apply.target import git_directory_of

    directory = git_directory_of(resource)
    found = [*resource.glob(".cleveragents-*"), *(directory.glob("cleveragents/*") if directory else ())]
    ours = [place for place in found if _NAME.fullmatch(place.name)]
    return sorted(place for place in ours if place.is_dir() and not place.is_symlink())


def _forgotten(container: Container, resource: Path, place: Path) -> Iterator[Orphan]:
    # After the directory was found: an apply writes its journal entry first.
    if _is_open(container, place):
        return
    look = f"look at {place}, then delete it"
    if not _began_here(container, place):
        advice = f"run `agents doctor` with the state directory that started the apply, or {look}"
        yield Orphan(f"{place}: left by an apply of another state directory", advice=advice)
    elif (only_copy := _only_copy(resource, place)) is not None:
        what = f"{place}: may hold the only copy of {only_copy.relative_to(place)}"
        yield Orphan(what, advice=look)
    else:
        fix = partial(_removed, container, resource, place)
        yield Orphan(f"{place}: left by an apply that has ended", fix, look)


def _removed(container: Container, resource: Path, place: Path) -> str:
    from cleveragents.apply.lock import try_resource_lock, unlock_index
    from cleveragents.apply.moves import remove_staging

    with try_resource_lock(resource) as held:
        if not held or _is_open(container, place):  # guard: a running apply keeps its staged files
            raise NotRemoved("a plan is being applied there now")
        if not place.is_dir():
            return ""
        if _only_copy(resource, place) is not None:  # guard: the only copy of a file stays
            raise NotRemoved("the directory may hold the only copy of a file")
        if place.parent.name == "cleveragents":
            unlock_index(place)
        if not remove_staging(str(place)):
            raise NotRemoved("the directory cannot be removed")
    return f"removed {place}: left by an apply that has ended"


def _is_open(container: Container, place: Path) -> bool:
    from cleveragents.apply.journal import ApplyJournal

    journal = ApplyJournal(container.database, container.identifiers, container.clock)
    return any(entry.id == _id_of(place) for entry in journal.open_entries())


def _began_here(container: Container, place: Path) -> bool:
    """Return whether this state directory started the apply. The audit log also records applies of plans that
    were deleted.
    """
    from sqlalchemy import select

    from cleveragents.storage.tables import applies, events

    known = select(applies.c.id).where(applies.c.id == _id_of(place))
    told = select(events.c.subject).where(
        events.c.event_type == EventType.APPLY_STARTED.value, events.c.payload.contains(_id_of(place))
    )
    with container.database.read() as connection:
        return any(connection.execute(query.limit(1)).first() is not None for query in (known, told))


def _only_copy(resource: Path, place: Path) -> Path | None:
    """Return the first staged or replaced file that the last commit does not contain, or None."""
    kept = [
        Path(folder, name)
        for part in ("old", "new")
        for folder, folders, names in os.walk(place / part)
        for name in (*names, *(below for below in folders if Path(folder, below).is_symlink()))
    ]
    if not kept:
        return None
    odd = [file for file in kept if file.is_symlink() or not file.is_file()]
    if odd or len(kept) > _MOST_COMPARED:
        return (odd or kept)[0]
    return _first_uncommitted(resource, kept)


def _first_uncommitted(resource: Path, files: Sequence[Path]) -> Path | None:
    from cleveragents.apply.target import git_directory_of
    from cleveragents.apply.user_git import UserGit

    directory = git_directory_of(resource)
    if directory is None:
        return files[0]
    user = UserGit(directory, resource)
    try:
        lines = user.git("ls-tree", "-r", "-z", "HEAD").split(b"\0")[:-1]
    except GitFailed:
        return files[0]  # nothing is committed
    committed = {line.split(b"\t", 1)[0].split(b" ")[2] for line in lines}
    names = user.git("hash-object", "--no-filters", "--", *map(str, files)).split()
    return next((file for file, name in zip(files, names, strict=True) if name not in committed), None)


def _id_of(place: Path) -> str:
    return place.name.removeprefix(".cleveragents-")
