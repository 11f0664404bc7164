"""Mirrors of git remotes that are no longer used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.cli.doctor.orphans import NotRemoved, Orphan

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.remote_parts import RemoteParts

__all__ = ["remove_mirrors", "unneeded_mirrors"]


def unneeded_mirrors(container: Container) -> Sequence[Orphan]:
    """Return stale drafts, and mirrors that no plan or resource uses and that were not fetched recently."""
    remotes = container.plan_parts.remotes
    drafts = [
        Orphan(f"{path}: never completed", partial(_without_draft, path)) for path in remotes.mirrors.drafts()
    ]
    mirrors = [
        Orphan(
            f"the mirror {path.name}: no plan and no resource uses its remote",
            partial(_without_mirror, remotes, path),
        )
        for path in _unneeded(remotes)
    ]
    return [*mirrors, *drafts]


def remove_mirrors(remotes: RemoteParts, *, dry_run: bool) -> int:
    """Remove unneeded mirrors and return their number; `dry_run` only counts."""
    return sum(dry_run or remotes.mirrors.remove(path, remotes.needed) for path in _unneeded(remotes))


def _unneeded(remotes: RemoteParts) -> Sequence[Path]:
    # Most installations have no mirrors; then the query for needed ones is skipped.
    return remotes.mirrors.unneeded(remotes.needed()) if remotes.mirrors.unneeded(()) else ()


def _without_mirror(remotes: RemoteParts, path: Path) -> str:
    if not remotes.mirrors.remove(path, remotes.needed):
        raise NotRemoved("the mirror is in use now")
    return f"removed the mirror {path.name}"


def _without_draft(path: Path) -> str:
    from cleveragents.storage.files.paths import remove_all

    remove_all(path)
    return f"removed {path}"
