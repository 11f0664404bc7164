"""What the plan engine asks of the container."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cleveragents.application.actor_parts import ActorFoundations

if TYPE_CHECKING:
    from cleveragents.application.ports.faults import FaultPoints
    from cleveragents.application.ports.jobs import JobStore
    from cleveragents.application.ports.projects import ProjectStore
    from cleveragents.application.ports.workers import WorkerRegistry
    from cleveragents.infrastructure.jobs.process_supervisor import PsutilProcessSupervisor
    from cleveragents.infrastructure.persistence.sql_changeset_store import SqlChangesetStore

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
    def projects(self) -> ProjectStore: ...

    @property
    def worker_registry(self) -> WorkerRegistry: ...
