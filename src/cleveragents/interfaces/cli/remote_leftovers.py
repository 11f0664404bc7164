"""Mirrors of git remotes that nobody uses any more.

They are only mentioned: a mirror is never removed while somebody might borrow its objects, and only a person
knows whether a worker of this state is about to.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cleveragents.domain.project import ResourceKind
from cleveragents.domain.remote import remote_of
from cleveragents.interfaces.cli.leftovers import Leftover
from cleveragents.interfaces.cli.plan_leftovers import all_plans

if TYPE_CHECKING:
    from cleveragents.application.container import Container

__all__ = ["unneeded_mirrors"]


def unneeded_mirrors(container: Container) -> Sequence[Leftover]:
    """Those of remotes that no plan and no resource names, and that nobody has fetched of late."""
    mirrors = container.plan_parts.remotes.mirrors
    if not mirrors.unneeded(()):  # most have no mirror at all, and then no plan needs to be looked at
        return []
    return [
        Leftover(
            f"the mirror {path.name} of a remote that no plan and no resource names",
            advice=f"while no worker runs here: rm -rf {shlex.quote(str(path.with_suffix('')))}{{,.git}}",
        )
        for path in mirrors.unneeded(set(_addresses(container)))
    ]


def _addresses(container: Container) -> Iterator[str]:
    for plan in all_plans(container):
        address = remote_of(plan.resource)
        if address is not None:
            yield address.url
    for resource in container.projects.resources():
        if resource.kind is not ResourceKind.DIRECTORY:
            yield resource.location
