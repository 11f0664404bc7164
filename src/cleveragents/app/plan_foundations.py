"""What the plan engine asks of the container."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cleveragents.app.actor_parts import ActorFoundations

if TYPE_CHECKING:
    from cleveragents.access.store.sql_project_store import SqlProjectStore
    from cleveragents.changes.store.sql_changeset_store import SqlChangesetStore
    from cleveragents.core.faults import FaultPoints
    from cleveragents.jobs.ports import JobStore, WorkerRegistry
    from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor

__all__ = ["Foundations"]


class Foundations(ActorFoundations, Protocol):
    """What the plan engine stands on; the container is one."""

    faults: FaultPoints

    @property
    def jobs(self) -> JobStore: ...

    @property
    def home(self) -> str: ...

    @property
    def changesets(self) -> SqlChangesetStore: ...

    @property
    def processes(self) -> PsutilProcessSupervisor: ...

    @property
    def projects(self) -> SqlProjectStore: ...

    @property
    def worker_registry(self) -> WorkerRegistry: ...
