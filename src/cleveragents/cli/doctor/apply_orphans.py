"""What applies left in repositories and the journal does not tell of any more.

An apply lays its new files out in `.git/cleveragents/ID`, or in `.cleveragents-ID` where there is no git
directory on the same disk, and keeps there what it swaps out. What its journal still knows is ended by
recovery. What is left without that (its plan was deleted, or somebody wrote into what was swapped out) stands
in the way of every further apply. It goes only if it was begun by this state and holds nothing but what the
last commit has, too.
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
    """Directories of applies that no open journal knows, in the resources that plans were made for."""
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
    # Only now: an apply is in the journal before its directory is there.
    if _is_open(container, place):
        return
    look = f"look at {place}, then delete it"
    if not _began_here(container, place):
        advice = f"let whoever began it run `agents doctor`, or {look}"
        yield Orphan(f"{place}: an apply of another state left it", advice=advice)
    elif (only_copy := _only_copy(resource, place)) is not None:
        what = f"{place}: it holds what may be nowhere else ({only_copy.relative_to(place)})"
        yield Orphan(what, advice=look)
    else:
        mend = partial(_removed, container, resource, place)
        yield Orphan(f"{place}: an apply that is over left it", mend, look)


def _removed(container: Container, resource: Path, place: Path) -> str:
    from cleveragents.apply.lock import try_resource_lock, unlock_index
    from cleveragents.apply.moves import remove_staging

    with try_resource_lock(resource) as held:
        if not held or _is_open(container, place):  # guard: nobody's apply loses what it laid out
            raise NotRemoved("a plan is being applied there")
        if not place.is_dir():
            return ""
        if _only_copy(resource, place) is not None:  # guard: what is nowhere else stays
            raise NotRemoved("it holds what may be nowhere else")
        if place.parent.name == "cleveragents":
            unlock_index(place)
        if not remove_staging(str(place)):
            raise NotRemoved("it cannot be removed")
    return f"removed {place}: an apply that is over had left it"


def _is_open(container: Container, place: Path) -> bool:
    from cleveragents.apply.journal import ApplyJournal

    journal = ApplyJournal(container.database, container.identifiers, container.clock)
    return any(entry.id == _id_of(place) for entry in journal.open_entries())


def _began_here(container: Container, place: Path) -> bool:
    """Whether this state began it: the audit log remembers applies of plans that are deleted."""
    from sqlalchemy import select

    from cleveragents.storage.tables import applies, events

    known = select(applies.c.id).where(applies.c.id == _id_of(place))
    told = select(events.c.subject).where(
        events.c.event_type == EventType.APPLY_STARTED.value, events.c.payload.contains(_id_of(place))
    )
    with container.database.read() as connection:
        return any(connection.execute(query.limit(1)).first() is not None for query in (known, told))


def _only_copy(resource: Path, place: Path) -> Path | None:
    """A file that was put aside, or was to be brought in, and that the last commit does not have."""
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
