"""What a user of the server may see and do: the one place that decides it, for HTTP and Agent2Agent alike.

An object of a project in which the user is no member does not exist for them: asking for it raises the same
error as asking for one that never was. In their own projects, a role that is too small raises `NotAllowed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from cleveragents.access.model.user import ProjectScope, Role, User
from cleveragents.core.errors import NotAllowed, UnknownJob, UnknownPlan, UnknownProject, UnknownResource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleveragents.access.model.project import Project, Resource
    from cleveragents.access.model.user import Token
    from cleveragents.app.container import Container
    from cleveragents.jobs.model.job import Job
    from cleveragents.plans.model.plan import Plan

__all__ = ["OWNER", "Access", "owner_of"]

OWNER = "owner"
"""The name of the acting user where no server is involved."""


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of one user, as they were when the request came. Any thread may use it.

    `token` is the token of the request; None where no server is involved.
    """

    container: Container
    user: User
    token: Token | None = None

    @property
    def is_owner(self) -> bool:
        """Whether the acting user is the owner of this machine's state, who is no user of the server."""
        return self.user.id == OWNER

    @property
    def scope(self) -> ProjectScope:
        """The projects whose objects lists may show; None: all."""
        return self.user.scope

    def sees(self, project: str | None) -> bool:
        """Whether objects of the project may be shown; those of none are for server admins."""
        if project is None:
            return self.user.is_server_admin
        return self.user.role_in(project) is not None

    def ensure_server_admin(self) -> None:
        """`NotAllowed`."""
        if not self.user.is_server_admin:  # guard: what all projects share is not one project's to change
            self._refuse(self.user.role, Role.ADMIN.value)

    def ensure_anywhere(self, needed: Role) -> None:
        """Raise `NotAllowed` unless they have the role in some project: for what belongs to none."""
        user = self.user
        may = user.is_server_admin or any(user.may(needed, name) for name in user.projects)
        if not may:  # guard: what costs the server something is for operators
            self._refuse(user.role, needed.value)

    def ensure(self, needed: Role, project: str) -> None:
        """Raise `NotAllowed` unless their role in the project, which they can see, is enough."""
        if not self.user.may(needed, project):  # guard: each role may what it may, in this project
            self._refuse(self.user.role_in(project) or Role.VIEWER, f"{needed.value} in project {project}")

    def plan(self, plan_id: str, needed: Role) -> Plan:
        """The plan of that id, or of which that is the beginning or the end, as its job has left it.
        `UnknownPlan`, `AmbiguousPlan`, `NotAllowed`."""
        parts = self.container.plan_parts
        plan = parts.plans.find(plan_id, scope=self.scope)
        self.ensure(needed, plan.project)
        return parts.lifecycle.reconciled(plan)

    def made(self, plan: Plan, needed: Role) -> Plan:
        """The plan, which was looked up elsewhere. `UnknownPlan`, `NotAllowed`."""
        if not self.sees(plan.project):  # guard: no project's plan is shown to others
            raise UnknownPlan(plan.id)
        self.ensure(needed, plan.project)
        return plan

    def job(self, job_id: str, needed: Role) -> Job:
        """`UnknownJob`, `NotAllowed`."""
        from cleveragents.access.store.sql_project_store import plan_id_in, project_of_plan

        job = self.container.jobs.get(job_id)
        plan_id = plan_id_in(job.kind)
        project = None if plan_id is None else project_of_plan(self.container.database, plan_id)
        if not self.sees(project):  # guard: no project's job is shown to others
            raise UnknownJob(job_id)
        if project is not None:
            self.ensure(needed, project)
        return job

    def project(self, name: str, needed: Role) -> Project:
        """`UnknownProject`, `NotAllowed`."""
        if not self.sees(name):  # guard: no project is shown to others than its members
            raise UnknownProject(name)
        found = self.container.projects.get(name)
        self.ensure(needed, name)
        return found

    def resource(self, name: str, needed: Role) -> Resource:
        """`UnknownResource`, `NotAllowed`."""
        found = self.container.projects.resource(name)
        if not self.sees(found.project):  # guard: no project's resource is shown to others
            raise UnknownResource(name)
        self.ensure(needed, found.project)
        return found

    def projects(self) -> Sequence[Project]:
        """The projects they can see, by name."""
        return [one for one in self.container.projects.list() if self.sees(one.name)]

    def resources(self, project: str | None = None) -> Sequence[Resource]:
        """The resources they can see, of a project or of all, by name."""
        return [one for one in self.container.projects.resources(project) if self.sees(one.project)]

    def _refuse(self, role: Role, needed: str) -> NoReturn:
        raise NotAllowed(self.user.name, role.value, needed)


def owner_of(container: Container, name: str = OWNER) -> User:
    """Return the owner of this machine's state, who may do everything. `name` is the one that the audit log
    shows: `mcp` if another agent acts for the owner."""
    return User(OWNER, name, Role.ADMIN, container.clock.now())
