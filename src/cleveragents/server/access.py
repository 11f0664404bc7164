"""The rule of each route: the role it needs, and where.

A route takes a client of the acting user, as `PlanViewer`, `JobOperator`, `ProjectAdmin`, … or `AnyClient`:
the client checks the user's rights; the name states them for the documentation and the tests.
A plan in the address is taken as `ReadPlan` or `OperatedPlan`, a job as `ReadJob` or `OperatedJob`: the route
gets the object only if the user may have it. What a query or a body names is asked of the `access` that
`AnyUser` gives. `ServerAdmin` and `AdminClient` are for what belongs to no project.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Depends, Path, Request

from cleveragents.access.model.user import Role, User
from cleveragents.api.access import Access
from cleveragents.api.client import LocalClient
from cleveragents.core.errors import NotAuthenticated
from cleveragents.jobs.model.job import Job
from cleveragents.plans.model.plan import Plan
from cleveragents.server.accounts import NamePath
from cleveragents.server.plan_models import PlanId

if TYPE_CHECKING:
    from starlette.requests import Request as AnyRequest

    from cleveragents.access.model.user import Token
    from cleveragents.app.container import Container

__all__ = [
    "AdminClient",
    "AnyClient",
    "AnyUser",
    "JobId",
    "JobOperator",
    "JobViewer",
    "OperatedJob",
    "OperatedPlan",
    "Operator",
    "OperatorClient",
    "PlanOperator",
    "PlanViewer",
    "ProjectAdmin",
    "ProjectViewer",
    "ReadJob",
    "ReadPlan",
    "ResourceAdmin",
    "ResourceServerAdmin",
    "Rule",
    "ServerAdmin",
    "access_now",
    "client_now",
    "client_of",
]

_EXAMPLE_JOB = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"
JobId = Annotated[str, Path(max_length=100, pattern=r"^[!-~]+$", examples=[_EXAMPLE_JOB])]


@dataclass(frozen=True, slots=True)
class Rule:
    """What a route needs: a role, and where. `where` is `server`, `project` (that of the object in the
    address), or `anywhere` (some project; or any user, for a viewer)."""

    role: Role
    where: Literal["server", "project", "anywhere"]

    @property
    def rank(self) -> int:
        """Of the rules of one route, the highest is the one that decides."""
        return (("anywhere", "project", "server").index(self.where) << 2) + list(Role).index(self.role)

    @property
    def needed(self) -> str:
        """What is needed, in a sentence."""
        if self.where == "server":
            return "Needs a server admin."
        if self.where == "project":
            return f"Needs the role {self.role.value} in the project."
        return (
            "Needs a user." if self.role is Role.VIEWER else f"Needs the role {self.role.value} in a project."
        )


@dataclass(frozen=True, slots=True)
class _Anywhere(Rule):
    def __call__(self, request: Request) -> Access:
        access = _access_of(request)
        if self.role is not Role.VIEWER:
            access.ensure_anywhere(self.role)
        return access


@dataclass(frozen=True, slots=True)
class _OnServer(Rule):
    def __call__(self, request: Request) -> Access:
        access = _access_of(request)
        access.ensure_server_admin()
        return access


@dataclass(frozen=True, slots=True)
class _Client(Rule):
    """A client of the acting user, which checks the rule on every call."""

    def __call__(self, request: Request) -> LocalClient:
        access = _access_of(request)
        if self.where == "server":  # before the body is read
            access.ensure_server_admin()
        elif self.where == "anywhere" and self.role is not Role.VIEWER:
            access.ensure_anywhere(self.role)
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _PlanClient(Rule):
    def __call__(self, access: AnyUser, plan_id: PlanId) -> LocalClient:
        access.plan(plan_id, self.role)  # guard: refused before the body is looked at
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _JobClient(Rule):
    def __call__(self, access: AnyUser, job_id: JobId) -> LocalClient:
        access.job(job_id, self.role)  # guard: refused before the body is looked at
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _ProjectClient(Rule):
    def __call__(self, access: AnyUser, name: NamePath) -> LocalClient:
        access.project(name, self.role)  # guard: refused before the body is looked at
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _ResourceClient(Rule):
    def __call__(self, access: AnyUser, name: NamePath) -> LocalClient:
        access.resource(name, self.role)  # guard: refused before the body is looked at
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _OfPlan(Rule):
    def __call__(self, access: AnyUser, plan_id: PlanId) -> Plan:
        return access.plan(plan_id, self.role)


@dataclass(frozen=True, slots=True)
class _OfJob(Rule):
    def __call__(self, access: AnyUser, job_id: JobId) -> Job:
        return access.job(job_id, self.role)


def access_now(request: AnyRequest, container: Container) -> Access | None:
    """The user's rights as they are now; None if the token no longer holds. For answers that last: the rights
    of the request were looked up once, when it came."""
    secret: str | None = request.state.secret
    token: Token | None = request.state.token
    if secret is None or token is None:
        return None
    found = container.users.known_by(secret, token.kind, now=container.clock.now())
    return None if found is None else Access(container, found[0])


def client_of(request: AnyRequest) -> LocalClient:
    """Return a client of the user who sent the request. `NotAuthenticated`."""
    return _client_of(_access_of(request))


def client_now(request: AnyRequest) -> LocalClient | None:
    """Return a client with the user's present rights, as `access_now`."""
    access = access_now(request, request.app.state.service.container)
    return None if access is None else _client_of(access)


def _client_of(access: Access) -> LocalClient:
    return LocalClient(access.container, access.user, token=access.token)


def _access_of(request: AnyRequest) -> Access:
    user: User | None = getattr(request.state, "user", None)
    if user is None:
        raise NotAuthenticated("send one in the header Authorization, as Bearer, or log in at /login")
    return Access(request.app.state.service.container, user, request.state.token)


OperatorClient = Annotated[LocalClient, Depends(_Client(Role.OPERATOR, "anywhere"))]
AnyClient = Annotated[LocalClient, Depends(_Client(Role.VIEWER, "anywhere"))]
AdminClient = Annotated[LocalClient, Depends(_Client(Role.ADMIN, "server"))]
PlanViewer = Annotated[LocalClient, Depends(_PlanClient(Role.VIEWER, "project"))]
PlanOperator = Annotated[LocalClient, Depends(_PlanClient(Role.OPERATOR, "project"))]
JobViewer = Annotated[LocalClient, Depends(_JobClient(Role.VIEWER, "project"))]
JobOperator = Annotated[LocalClient, Depends(_JobClient(Role.OPERATOR, "project"))]
ProjectViewer = Annotated[LocalClient, Depends(_ProjectClient(Role.VIEWER, "project"))]
ProjectAdmin = Annotated[LocalClient, Depends(_ProjectClient(Role.ADMIN, "project"))]
ResourceAdmin = Annotated[LocalClient, Depends(_ResourceClient(Role.ADMIN, "project"))]
ResourceServerAdmin = Annotated[LocalClient, Depends(_ResourceClient(Role.ADMIN, "server"))]
AnyUser = Annotated[Access, Depends(_Anywhere(Role.VIEWER, "anywhere"))]
Operator = Annotated[Access, Depends(_Anywhere(Role.OPERATOR, "anywhere"))]
ServerAdmin = Annotated[Access, Depends(_OnServer(Role.ADMIN, "server"))]
ReadPlan = Annotated[Plan, Depends(_OfPlan(Role.VIEWER, "project"))]
OperatedPlan = Annotated[Plan, Depends(_OfPlan(Role.OPERATOR, "project"))]
ReadJob = Annotated[Job, Depends(_OfJob(Role.VIEWER, "project"))]
OperatedJob = Annotated[Job, Depends(_OfJob(Role.OPERATOR, "project"))]
