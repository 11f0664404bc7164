"""Where projects and resources are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from cleveragents.access.model.project import Project, Resource, ResourceKind
from cleveragents.access.model.user import User

__all__ = ["ProjectStore"]


class ProjectStore(Protocol):
    """Projects and their resources. Every method is one atomic step with its event."""

    def add(
        self,
        name: str,
        description: str = "",
        *,
        max_parallel: int | None = None,
        now: datetime,
        creator: User | None = None,
    ) -> Project:
        """The `creator` becomes its admin. `AlreadyThere`, `InvalidName`."""
        ...

    def get(self, name: str) -> Project:
        """`UnknownProject`."""
        ...

    def list(self) -> Sequence[Project]:
        """By name."""
        ...

    def remove(self, name: str, *, now: datetime) -> None:
        """Its memberships end. `UnknownProject`; `StillUsed` while it has resources or plans, and for the
        default project."""
        ...

    def add_resource(
        self,
        name: str,
        project: str,
        kind: ResourceKind,
        location: str,
        *,
        branch: str | None = None,
        now: datetime,
    ) -> Resource:
        """A directory is one of the machine whose store this is. `AlreadyThere`, `InvalidName`,
        `UnknownProject`."""
        ...

    def resource(self, name: str) -> Resource:
        """`UnknownResource`."""
        ...

    def resources(self, project: str | None = None) -> Sequence[Resource]:
        """Of a project, or all, by name."""
        ...

    def remove_resource(self, name: str, *, now: datetime) -> None:
        """Plans that run on it go on. `UnknownResource`."""
        ...
