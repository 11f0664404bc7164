"""Mirrors of git remotes that nobody uses any more."""

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
    """Those of remotes that no plan and no resource names, and that nobody has fetched of late; and what
    somebody who died was making there."""
    remotes = container.plan_parts.remotes
    drafts = [Orphan(f"a draft, {path}", partial(_without_draft, path)) for path in remotes.mirrors.drafts()]
    mirrors = [
        Orphan(
            f"the mirror {path.name} of a remote that no plan and no resource names",
            partial(_without_mirror, remotes, path),
        )
        for path in _unneeded(remotes)
    ]
    return [*mirrors, *drafts]


def remove_mirrors(remotes: RemoteParts, *, dry_run: bool) -> int:
    """How many were removed, or would be."""
    return sum(dry_run or remotes.mirrors.remove(path, remotes.needed) for path in _unneeded(remotes))


def _unneeded(remotes: RemoteParts) -> Sequence[Path]:
    # Most have no mirror at all, and then nobody needs to be asked.
    return remotes.mirrors.unneeded(remotes.needed()) if remotes.mirrors.unneeded(()) else ()


def _without_mirror(remotes: RemoteParts, path: Path) -> str:
    if not remotes.mirrors.remove(path, remotes.needed):
        raise NotRemoved("somebody uses it now")
    return f"removed the mirror {path.name}"


def _without_draft(path: Path) -> str:
    from cleveragents.storage.files.paths import remove_all

    remove_all(path)
    return f"removed {path}"
