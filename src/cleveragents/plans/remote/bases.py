"""The commit that a plan on a remote began with: found once, the same on every machine from then on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, insert, select

from cleveragents.access.model.project import ResourceKind
from cleveragents.access.model.remote import SCHEME, RemoteAddress, remote_of
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.remote.contents import ensure_kept
from cleveragents.sandboxes.mirror import Mirrors
from cleveragents.storage.database import Database
from cleveragents.storage.service_tables import remote_bases, resources
from cleveragents.storage.tables import plans

__all__ = ["ResourceDirectories", "needed_remotes"]

_BASE = select(remote_bases.c.base)
# Kept as JSON.
_OF_PLANS = select(plans.c.resource).distinct().where(plans.c.resource.startswith(f'"{SCHEME}'))
_OF_RESOURCES = select(resources.c.location).where(resources.c.kind == ResourceKind.REMOTE.value)


def needed_remotes(database: Database) -> set[str]:
    """The addresses that a plan, whatever has become of it, or a resource names."""
    with database.read() as connection:
        named = (remote_of(json.loads(text)) for text in connection.execute(_OF_PLANS).scalars())
        of_plans = {address.url for address in named if address is not None}
        return of_plans | set(connection.execute(_OF_RESOURCES).scalars())


@dataclass(frozen=True, slots=True)
class ResourceDirectories:
    """Where the resource of a plan is on this machine. Stateless but for the database and the mirrors."""

    database: Database
    mirrors: Mirrors

    def of_plan(self, plan: Plan) -> Path:
        """Its resource, if that is a directory; of a remote, a checkout of what the plan began with, which
        is the branch as it is now if nobody asked before. `RemoteUnreachable`, `SandboxRefused`."""
        address = remote_of(plan.resource)
        if address is None:
            return Path(plan.resource)
        return self.mirrors.checkout(address, self.base(plan.root, address))

    def of_resource(self, resource: str) -> Path:
        """The same for what is asked before there is a plan: of a remote, the branch as it is now."""
        address = remote_of(resource)
        return (
            Path(resource)
            if address is None
            else self.mirrors.checkout(address, self.mirrors.fetched(address))
        )

    def base(self, root_id: str, address: RemoteAddress) -> str:
        """The commit with which the plan of that id began, and all its sub-plans. `UnknownPlan`."""
        known = self._known(root_id)
        if known is not None:
            return known
        tip = self.mirrors.fetched(address)

        def unit(connection: Connection) -> str:
            # Whoever else looks for it at this moment waits here, and then finds it.
            ensure_kept(connection, root_id)  # guard: nobody would ever take it away
            found: str | None = connection.execute(_BASE.where(remote_bases.c.plan_id == root_id)).scalar()
            if found is None:  # guard: there is one base for all machines
                connection.execute(insert(remote_bases), {"plan_id": root_id, "base": tip})
            return found or tip

        return self.database.write(unit)

    def _known(self, root_id: str) -> str | None:
        with self.database.read() as connection:
            found: str | None = connection.execute(_BASE.where(remote_bases.c.plan_id == root_id)).scalar()
        return found
