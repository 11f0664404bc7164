"""Requests for plans by users of a server: on registered resources only, in a queue that workers share.

A request may contain the YAML of an actor. The tools of this actor run under the plan's policy, like those of
every actor. The actor must not use features that no policy covers: starting programs itself, and reading
files of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from cleveragents.access.model.project import TO_BRANCH, ResourceKind, resource_of
from cleveragents.access.model.user import Role
from cleveragents.actors.model.actor import AgentNode, is_actor_file
from cleveragents.api.plans.create import PlanSpec, ensure_new_branch, requested_plan
from cleveragents.api.plans.goal_requests import GoalsText, requested_goals
from cleveragents.api.resources import directory_of, known_place_of
from cleveragents.core.actions.model import BUILTIN_NAMESPACE
from cleveragents.core.errors import InvalidActor, NotTrusted, RequestRefused, UnknownActor
from cleveragents.core.json_value import freeze, thaw
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.jobs.names import home_queue

if TYPE_CHECKING:
    from cleveragents.actors.model.actor import Actor
    from cleveragents.actors.ports import ActorSource
    from cleveragents.api.access import Access
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.ports.plans import PlanDraft
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = [
    "SOURCE",
    "ActorsByName",
    "ServerPlanRequest",
    "checked_actor",
    "made_before",
    "requested_by",
    "requested_for_all",
    "requested_in",
    "shared_plan",
    "trusted_by_name",
]


SOURCE = "the actor of the request"
_SHIPPED = (BUILTIN_NAMESPACE, "external")


@dataclass(frozen=True, slots=True)
class ServerPlanRequest:
    """A request for a plan on the named resource.

    `apply`: `auto` applies the result without approval, `review` never does; None leaves the choice to the
    profile.
    `to_branch`: the new branch of a remote to push the result to. `goals`: the YAML of several goals.
    """

    resource: str
    wanted: PlanSpec
    apply: str | None = None
    to_branch: str | None = None
    goals: str | None = None


def requested_by(access: Access, asked: ServerPlanRequest, *, claim: IdempotencyClaim | None = None) -> Plan:
    """Create a plan as `shared_plan` does, if the user is an operator of the resource's project.

    For a repeated request, the project of the existing plan counts instead. Raises `NotAllowed`.
    """
    again = made_before(access.container, claim)
    if again is not None:  # guard: an existing plan is neither created again nor shown to others
        return access.made(again, Role.OPERATOR)
    access.resource(asked.resource, Role.OPERATOR)
    if asked.wanted.include or is_actor_file(asked.wanted.actor or ""):
        access.ensure_server_admin()  # guard: users of a server name no files of its machine
    return shared_plan(access.container, asked, by=access.user.name, claim=claim)


def shared_plan(
    container: Container, asked: ServerPlanRequest, *, by: str, claim: IdempotencyClaim | None = None
) -> Plan:
    """Create the plan and queue it for any worker, or return the plan that `made_before` finds.

    Raises `UnknownResource`, `RequestRefused`, `QueueFull` and other errors of an invalid request;
    `RequestUnderWay` if another request took over the claim.
    """
    again = made_before(container, claim)
    if again is not None:  # guard: an existing plan is not created again
        return again
    return container.plan_parts.lifecycle.create(requested_for_all(container, asked, by=by), claim)


def made_before(container: Container, claim: IdempotencyClaim | None) -> Plan | None:
    """Return the plan that an earlier attempt of this request created, and queue it if it is not queued yet.
    None if there is none.

    The plan is found even if the resource or action of the request is gone. Raises `UnknownPlan` if the plan
    was deleted; `QueueFull` and `RequestUnderWay` as `shared_plan`.
    """
    if claim is None or claim.made is None:
        return None
    parts = container.plan_parts
    return parts.lifecycle.queueing.started(parts.plans.get(claim.made), claim)


def requested_for_all(container: Container, asked: ServerPlanRequest, *, by: str) -> PlanDraft:
    """Return the plan to create, in a form that workers on all machines can run."""
    from cleveragents.sandboxes.resources import is_repository

    # By its name: no user names a path.
    resource = container.projects.resource(asked.resource)
    if asked.to_branch is not None:
        ensure_new_branch(asked.to_branch, remote=resource.kind is ResourceKind.REMOTE)
    if resource.kind is ResourceKind.REMOTE:
        # The repository's own actions and actors are known as of the last fetch on this machine, if any.
        known = known_place_of(container, resource) or Path(container.state_directory, "nowhere")
        with trusted_by_name(resource.name):
            new = requested_in(container, asked, known, remote=True)
        new = structs.replace(new, resource=resource_of(resource))
    else:
        directory = directory_of(container, resource)
        if asked.wanted.from_head and not is_repository(directory):
            raise RequestRefused(f"{resource.name} is not a git repository, so it has no HEAD", "start")
        with trusted_by_name(resource.name):
            new = requested_in(container, asked, directory)
    request = thaw(new.request)
    assert isinstance(request, dict)
    more = {
        "queue": home_queue(resource.home),
        "project": resource.project,
        "resource_name": resource.name,
        "by": by,
        **({} if asked.apply is None else {"apply": asked.apply}),
        **({} if asked.to_branch is None else {TO_BRANCH: asked.to_branch}),
    }
    whole = freeze({**request, **more})
    assert isinstance(whole, Mapping)
    return structs.replace(new, request=whole, project=resource.project)


@contextmanager
def trusted_by_name(resource: str | None) -> Iterator[None]:
    """Replace the path in errors about trust by the name of the resource, because users may not see the
    path.
    """
    try:
        yield
    except NotTrusted as refused:
        raise (refused if resource is None else replace(refused, path="", resource=resource)) from None


def requested_in(
    container: Container, asked: ServerPlanRequest, directory: Path, *, remote: bool = False
) -> PlanDraft:
    """Return the plan to create on the directory, with the actor of the request."""
    wanted, parts = asked.wanted, container.plan_parts
    if wanted.sent_actor is not None:
        name, kept = checked_actor(parts, wanted.sent_actor, directory)
        wanted = structs.replace(wanted, actor=name, sent_actor=kept)
    if asked.goals is None:
        return requested_plan(parts, wanted, directory, remote=remote)
    text = GoalsText(asked.goals.encode(), "the request", sent=True)
    return requested_goals(container, wanted, text, directory, remote=remote)


class ActorsByName:
    """The actors that a request can name; files are excluded."""

    def __init__(self, known: ActorSource) -> None:
        self._known = known

    def get(self, name: str) -> Actor:
        if is_actor_file(name):  # guard: a request reads no files of the server
            raise UnknownActor(name, None)
        return self._known.get(name)


def checked_actor(parts: PlanParts, text: str, root: Path) -> tuple[str, str]:
    """Return the name and the text of the actor, as stored, without secrets.

    Raises `InvalidActor` with all mistakes, including features that a request must not use.
    """
    from cleveragents.actors.loader import load_actor

    kept = redact_text(text)
    named = ActorsByName(parts.actors(root))
    actor = load_actor(kept, SOURCE, tools=parts.tools_of_actors, actors=named)
    if actor.name.partition("/")[0] in _SHIPPED:
        raise InvalidActor(SOURCE, (f"{actor.name} is reserved for built-in actors; use another name",))
    for node in actor.nodes:
        if isinstance(node, AgentNode):  # guard: it would run with the rights of the server's own user
            why = "only actors that are installed on the server may start a program; name one of those"
            raise InvalidActor(SOURCE, (f"node {node.name}: {why} (NAMESPACE/NAME)",))
    return actor.name, kept
