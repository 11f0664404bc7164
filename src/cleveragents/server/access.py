"""The access rule of each route: the role that a user needs, and where.

A route has a parameter for a client of the acting user, of the type `PlanViewer`, `JobOperator`,
`ProjectAdmin`, … or `AnyClient`. The client checks the user's rights. The type names the required rights, for
the documentation and the tests. `AdminClient` is for objects that belong to no project. `ReadPlan` is the
plan in the address, if the user may read it. `AnyUser` holds the rights of the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Depends, Path, Request

from cleveragents.access.model.user import Role, User
from cleveragents.api.access import Access
from cleveragents.api.client import LocalClient
from cleveragents.core.errors import NotAuthenticated
from cleveragents.plans.model.plan import Plan
from cleveragents.server.parameters import NamePath, PlanId

if TYPE_CHECKING:
    from starlette.requests import Request as AnyRequest

    from cleveragents.access.model.user import Token
    from cleveragents.app.container import Container

__all__ = [
    "AccessRule",
    "AdminClient",
    "AnyClient",
    "AnyUser",
    "ConversationId",
    "ConversationOperator",
    "ConversationViewer",
    "JobId",
    "JobOperator",
    "JobViewer",
    "OperatorClient",
    "PlanOperator",
    "PlanViewer",
    "ProjectAdmin",
    "ProjectViewer",
    "ReadPlan",
    "ResourceAdmin",
    "ResourceServerAdmin",
    "RuleId",
    "RuleOperator",
    "access_now",
    "client_now",
    "client_of",
]

_EXAMPLE_JOB = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"
RuleId = Annotated[
    str,
    Path(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="the id of a rule, or an unambiguous beginning or end of it",
        examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1D"],
    ),
]
ConversationId = Annotated[
    str,
    Path(
        max_length=64,
        pattern=r"^[0-9A-Za-z]+$",
        description="the id of a conversation, or an unambiguous beginning or end of it",
        examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1E"],
    ),
]
JobId = Annotated[str, Path(max_length=100, pattern=r"^[!-~]+$", examples=[_EXAMPLE_JOB])]


@dataclass(frozen=True, slots=True)
class AccessRule:
    """The access rule of a route: a role, and where it is needed. `where` is `server`, `project` (of the
    object in the address), or `anywhere` (any project; for a viewer, any user).
    """

    role: Role
    where: Literal["server", "project", "anywhere"]

    @property
    def rank(self) -> int:
        """The strictness of the rule. If a route has several rules, the rule with the highest
        rank applies.
        """
        return (("anywhere", "project", "server").index(self.where) << 2) + list(Role).index(self.role)

    @property
    def needed(self) -> str:
        """The rule as a sentence for the API documentation."""
        if self.where == "server":
            return "Requires a server admin."
        if self.where == "project":
            return f"Requires the role {self.role.value} in the project."
        return (
            "Requires a user."
            if self.role is Role.VIEWER
            else f"Requires the role {self.role.value} in a project."
        )


@dataclass(frozen=True, slots=True)
class _AnyUser(AccessRule):
    def __call__(self, request: Request) -> Access:
        return _access_of(request)


@dataclass(frozen=True, slots=True)
class _Client(AccessRule):
    """A client of the acting user, which checks the rule on every call."""

    def __call__(self, request: Request) -> LocalClient:
        access = _access_of(request)
        if self.where == "server":  # refused before the body is read
            access.ensure_server_admin()
        elif self.where == "anywhere" and self.role is not Role.VIEWER:
            access.ensure_anywhere(self.role)
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _PlanClient(AccessRule):
    def __call__(self, access: AnyUser, plan_id: PlanId) -> LocalClient:
        access.plan(plan_id, self.role)  # guard: refused before the body is read
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _JobClient(AccessRule):
    def __call__(self, access: AnyUser, job_id: JobId) -> LocalClient:
        access.job(job_id, self.role)  # guard: refused before the body is read
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _ProjectClient(AccessRule):
    def __call__(self, access: AnyUser, name: NamePath) -> LocalClient:
        access.project(name, self.role)  # guard: refused before the body is read
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _ResourceClient(AccessRule):
    def __call__(self, access: AnyUser, name: NamePath) -> LocalClient:
        access.resource(name, self.role)  # guard: refused before the body is read
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _RuleClient(AccessRule):
    def __call__(self, access: AnyUser, rule_id: RuleId) -> LocalClient:
        access.rule(rule_id, self.role)  # guard: refused before the body is read
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _ConversationClient(AccessRule):
    def __call__(self, access: AnyUser, conversation_id: ConversationId) -> LocalClient:
        access.conversation(conversation_id, self.role)  # guard: refused before the body is read
        return _client_of(access)


@dataclass(frozen=True, slots=True)
class _OfPlan(AccessRule):
    def __call__(self, access: AnyUser, plan_id: PlanId) -> Plan:
        return access.plan(plan_id, self.role)


def access_now(request: AnyRequest, container: Container) -> Access | None:
    """Return the current rights of the user, or None if the token is no longer valid. Use it for long
    responses: the request itself has the rights from the time of its arrival.
    """
    secret: str | None = request.state.secret
    token: Token | None = request.state.token
    if secret is None or token is None:
        return None
    found = container.users.known_by(secret, token.kind, now=container.clock.now())
    return None if found is None else Access(container, found[0])


def client_of(request: AnyRequest) -> LocalClient:
    """Return a client of the acting user. Raises `NotAuthenticated`."""
    return _client_of(_access_of(request))


def client_now(request: AnyRequest) -> LocalClient | None:
    """Return a client with the user's current rights, or None if the token is no longer valid."""
    access = access_now(request, request.app.state.service.container)
    return None if access is None else _client_of(access)


def _client_of(access: Access) -> LocalClient:
    return LocalClient(access.container, access.user, token=access.token)


def _access_of(request: AnyRequest) -> Access:
    user: User | None = getattr(request.state, "user", None)
    if user is None:
        raise NotAuthenticated("send a token in the header Authorization as Bearer, or log in at /login")
    return Access(request.app.state.service.container, user, request.state.token)


AnyUser = Annotated[Access, Depends(_AnyUser(Role.VIEWER, "anywhere"))]
AnyClient = Annotated[LocalClient, Depends(_Client(Role.VIEWER, "anywhere"))]
OperatorClient = Annotated[LocalClient, Depends(_Client(Role.OPERATOR, "anywhere"))]
AdminClient = Annotated[LocalClient, Depends(_Client(Role.ADMIN, "server"))]
PlanViewer = Annotated[LocalClient, Depends(_PlanClient(Role.VIEWER, "project"))]
PlanOperator = Annotated[LocalClient, Depends(_PlanClient(Role.OPERATOR, "project"))]
ReadPlan = Annotated[Plan, Depends(_OfPlan(Role.VIEWER, "project"))]
JobViewer = Annotated[LocalClient, Depends(_JobClient(Role.VIEWER, "project"))]
JobOperator = Annotated[LocalClient, Depends(_JobClient(Role.OPERATOR, "project"))]
ProjectViewer = Annotated[LocalClient, Depends(_ProjectClient(Role.VIEWER, "project"))]
ProjectAdmin = Annotated[LocalClient, Depends(_ProjectClient(Role.ADMIN, "project"))]
ResourceAdmin = Annotated[LocalClient, Depends(_ResourceClient(Role.ADMIN, "project"))]
RuleOperator = Annotated[LocalClient, Depends(_RuleClient(Role.OPERATOR, "project"))]
ConversationViewer = Annotated[LocalClient, Depends(_ConversationClient(Role.VIEWER, "project"))]
ConversationOperator = Annotated[LocalClient, Depends(_ConversationClient(Role.OPERATOR, "project"))]
ResourceServerAdmin = Annotated[LocalClient, Depends(_ResourceClient(Role.ADMIN, "server"))]
