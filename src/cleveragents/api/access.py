"""Access checks of a user of the server, for HTTP and Agent2Agent.

An object in another project does not exist for the user: a request for it raises the same error as for an
object that never existed. In the user's own projects, an insufficient role raises `NotAllowed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.access.model.user import ProjectScope, Role, User
from cleveragents.core.errors import (
    NotAllowed,
    RequestRefused,
    UnknownJob,
    UnknownPlan,
    UnknownProject,
    UnknownResource,
    UnknownRule,
    UnknownUser,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleveragents.access.model.project import Project, Resource
    from cleveragents.access.model.user import Token
    from cleveragents.app.container import Container
    from cleveragents.conversations.model import Conversation
    from cleveragents.jobs.model.job import Job
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.store.sql_rule_store import ApprovalRule

__all__ = ["OWNER", "Access", "owner_of"]

_SHORTEST_PART = 4
OWNER = "owner"
"""The name of the acting user where no server is involved."""


class Access(Struct, frozen=True):
    """The rights of one user at the time of the request. Any thread may use it.

    `token` is the token of the request; None where no server is involved.
    """

    container: Container
    user: User
    token: Token | None = None

    @property
    def is_owner(self) -> bool:
        """Whether the acting user is the owner of this machine's state, who is not a user of a server."""
        return self.user.id == OWNER

    def now(self) -> Access:
        """Return the current rights of the user, for work that continues after its request. Raises
        `UnknownUser` if the user was removed.
        """
        if self.is_owner:
            return self
        user = self.container.users.get(self.user.name)
        if user.id != self.user.id:  # guard: another person has the name now
            raise UnknownUser(self.user.name)
        return replace(self, user=user)

    @property
    def scope(self) -> ProjectScope:
        """The projects whose objects the user may list; None: all."""
        return self.user.scope

    def sees(self, project: str | None) -> bool:
        """Return whether the user may see objects of the project. Only server admins see objects without a
        project.
        """
        if project is None:
            return self.user.is_server_admin
        return self.user.role_in(project) is not None

    def ensure_server_admin(self) -> None:
        """Raise `NotAllowed` unless the user is a server admin."""
        if not self.user.is_server_admin:  # guard: shared by all projects
            self._refuse(self.user.role, Role.ADMIN.value)

    def ensure_anywhere(self, needed: Role) -> None:
        """Raise `NotAllowed` unless the user has the role in some project."""
        user = self.user
        may = user.is_server_admin or any(user.may(needed, name) for name in user.projects)
        if not may:  # guard: only operators may cause costs
            self._refuse(user.role, needed.value)

    def ensure(self, needed: Role, project: str) -> None:
        """Raise `NotAllowed` unless the user's role in the project is sufficient."""
        if not self.user.may(needed, project):  # guard: the role in this project decides
            self._refuse(self.user.role_in(project) or Role.VIEWER, f"{needed.value} in project {project}")

    def plan(self, plan_id: str, needed: Role) -> Plan:
        """Return the plan with this id, or this beginning or end of an id, updated to the state of its job.

        Raises `UnknownPlan`, `AmbiguousPlan`, `NotAllowed`.
        """
        parts = self.container.plan_parts
        plan = parts.plans.find(plan_id, scope=self.scope)
        self.ensure(needed, plan.project)
        return parts.lifecycle.reconciled(plan)

    def made(self, plan: Plan, needed: Role) -> Plan:
        """Return the plan, after checking that the user may access it. Raises `UnknownPlan`, `NotAllowed`."""
        if not self.sees(plan.project):  # guard: plans of other projects are hidden
            raise UnknownPlan(plan.id)
        self.ensure(needed, plan.project)
        return plan

    def job(self, job_id: str, needed: Role) -> Job:
        """Return the job with this id. Raises `UnknownJob`, `NotAllowed`."""
        from cleveragents.access.store.sql_project_store import plan_id_in, project_of_plan

        job = self.container.jobs.get(job_id)
        plan_id = plan_id_in(job.kind)
        project = None if plan_id is None else project_of_plan(self.container.database, plan_id)
        if not self.sees(project):  # guard: jobs of other projects are hidden
            raise UnknownJob(job_id)
        if project is not None:
            self.ensure(needed, project)
        return job

    def project(self, name: str, needed: Role) -> Project:
        """Return the project. Raises `UnknownProject`, `NotAllowed`."""
        if not self.sees(name):  # guard: only members see a project
            raise UnknownProject(name)
        found = self.container.projects.get(name)
        self.ensure(needed, name)
        return found

    def resource(self, name: str, needed: Role) -> Resource:
        """Return the resource. Raises `UnknownResource`, `NotAllowed`."""
        found = self.container.projects.resource(name)
        if not self.sees(found.project):  # guard: resources of other projects are hidden
            raise UnknownResource(name)
        self.ensure(needed, found.project)
        return found

    def rule(self, rule_id: str, needed: Role) -> ApprovalRule:
        """Return the approval rule with this id, or this beginning or end of an id.

        Raises `UnknownRule`, `NotAllowed`; `RequestRefused` if several rules match.
        """
        wanted = rule_id.upper()
        seen = [one for one in self.container.plan_parts.rules.list() if self.sees(one.scope.project)]
        found = [one for one in seen if one.id == wanted]
        if not found and len(wanted) >= _SHORTEST_PART:
            found = [one for one in seen if one.id.startswith(wanted) or one.id.endswith(wanted)]
        if not found:  # guard: rules of other projects are hidden
            raise UnknownRule(rule_id)
        if len(found) > 1:
            raise RequestRefused(
                f"{rule_id!r} matches {len(found)} rules; pass more characters of the id", "rule_id"
            )
        self.ensure(needed, found[0].scope.project)
        return found[0]

    def conversation(self, conversation_id: str, needed: Role) -> Conversation:
        """Return the conversation with this id, or this beginning or end of an id.

        Raises `UnknownConversation`, `NotAllowed`; `RequestRefused` if several conversations match.
        """
        found = self.container.conversations.store.find(conversation_id, scope=self.scope)
        self.ensure(needed, found.project)
        return found

    def projects(self) -> Sequence[Project]:
        """Return the projects that the user can see, by name."""
        return [one for one in self.container.projects.list() if self.sees(one.name)]

    def resources(self, project: str | None = None) -> Sequence[Resource]:
        """Return the resources that the user can see, of one project or of all, by name."""
        return [one for one in self.container.projects.resources(project) if self.sees(one.project)]

    def _refuse(self, role: Role, needed: str) -> NoReturn:
        raise NotAllowed(self.user.name, role.value, needed)


def owner_of(container: Container, name: str = OWNER) -> User:
    """Return the owner of this machine's state, who may do everything. `name` is shown in the audit log:
    `mcp` if another agent acts for the owner.
    """
    return User(OWNER, name, Role.ADMIN, container.clock.now())
