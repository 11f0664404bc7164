"""An MCP server: other agents create plans, watch them, read their diffs and search for context.

The server calls a `Client`: a local client, a client of a remote server, or the client of the user who sent a
request over HTTP. An agent can apply a result only if the plan's profile allows that without approval.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import structlog
from pydantic import Field

from cleveragents import __version__
from cleveragents.api.plans.client import LOOK_SECONDS
from cleveragents.api.views import as_json
from cleveragents.core.errors import CleverAgentsError, Fault
from cleveragents.core.text.field_problems import fields_text
from cleveragents.core.text.redaction import redact_text
from cleveragents.protocols.agent_requests import (
    Dollars,
    GoalOptions,
    Seconds,
    Tokens,
    only_resource,
    patch_text,
)

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.tools import Tool

    from cleveragents.api.client import Client
    from cleveragents.api.plans.views import PlanView

__all__ = ["INSTRUCTIONS", "McpServerOptions", "server_for"]

T = TypeVar("T")

INSTRUCTIONS = """\
Create a plan for a goal with create_plan. It runs in a sandbox, not in the user's files: watch it with
plan_status (wait_seconds saves you calls), read its changes with plan_diff. When `needs` is set, a person
has to act: tell them the `next_steps`. apply_plan applies the result to the files if the user's profile
allows it. context finds the code relevant to a question."""

_LONGEST_LOOK_SECONDS = 1.0
_FAILED = "internal error; the log has the details"
_READ_ONLY = frozenset({"plan_status", "plan_diff", "context"})
_FOR_GOOD = frozenset({"apply_plan", "cancel_plan"})
_SHOWN = (
    "id",
    "goal",
    "phase",
    "state",
    "branch",
    "needs",
    "meaning",
    "error",
    "files_changed",
    "tree",
    "next_steps",
)

_Plan = Annotated[str, Field(description="the plan's id, or an unambiguous part of it", max_length=64)]
_Resource = Annotated[
    str | None,
    Field(description="a registered resource; default: the repository of this server, or the only resource"),
]
_ToBranch = Annotated[
    str | None,
    Field(
        max_length=200,
        description="for a git remote: a new branch for the result; {plan} is the plan's id",
    ),
]


@dataclass(frozen=True, slots=True)
class McpServerOptions:
    """Options of the user who starts the server.

    Requests without a resource use `repository`; if that is None, the only resource. `profile` is the profile
    of new plans; None means the default in the settings. `context_seconds` is the time limit of a search.
    """

    repository: Path | None = None
    profile: str | None = None
    context_seconds: float | None = None


def server_for(client: Callable[[], Client], workplace: McpServerOptions) -> MCPServer:
    """Return the server, for any transport. Its tools raise only errors that a caller can understand.

    `client` returns the client of the current request, with the current rights of its user.
    """
    from mcp.server import MCPServer

    tools = [_offered(tool) for tool in _tools(_Requests(client, workplace))]
    # Errors go to the caller, not to the log of the agent that started the server.
    return MCPServer(
        "cleveragents",
        instructions=INSTRUCTIONS,
        version=__version__,
        tools=tools,
        log_level="WARNING",
        subscriptions=False,  # the list of tools never changes
    )


def _offered(tool: Callable[..., Any]) -> Tool:
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.mcpserver.tools import Tool
    from mcp.types import ToolAnnotations
    from pydantic import ValidationError

    class FieldErrors(Tool):
        """A tool that names the invalid arguments of a call, and quotes none of their values."""

        async def run(self, *call: Any, **options: Any) -> Any:
            try:
                return await super().run(*call, **options)
            except ToolError as error:
                if not isinstance(error.__cause__, ValidationError):
                    raise
                known = list(self.fn_metadata.arg_model.model_fields)
                raise ToolError(_problems(error.__cause__.errors(), known)) from None

    reads = tool.__name__ in _READ_ONLY
    hints = ToolAnnotations(read_only_hint=reads, destructive_hint=tool.__name__ in _FOR_GOOD)
    made = FieldErrors.from_function(tool, description=tool.__doc__, annotations=hints)
    arguments = made.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"  # guard: a limit that is misspelt is no limit
    arguments.model_rebuild(force=True)
    made.parameters = arguments.model_json_schema(by_alias=True)
    return made


def _problems(found: Sequence[Any], known: Collection[str]) -> str:
    """Return validation errors of a call as text. `known` are the names of all arguments."""
    from cleveragents.config.yaml.shape import did_you_mean

    extra = [str(one["loc"][-1]) for one in found if one["type"] == "extra_forbidden"]
    said = [redact_text(f"unknown argument {name!r}; {did_you_mean(name, known)}") for name in extra]
    others = fields_text(one for one in found if one["type"] != "extra_forbidden")
    return "; ".join([*said, others] if others else said)


@dataclass(frozen=True, slots=True)
class _Requests:
    """The requests of another agent as calls of a client. Any thread may use it."""

    client: Callable[[], Client]
    workplace: McpServerOptions

    def create(self, goal: str, terms: GoalOptions) -> dict[str, Any]:
        place, client = self.workplace, self.client()
        terms.resource = self._resource(client, terms.resource)
        request = terms.request(goal, profile=place.profile, repository=place.repository)
        return _shown(client.plans.create(request))

    def status(self, plan: str) -> dict[str, Any]:
        return _shown(self.client().plans.get(plan))

    def rests(self, plan: str) -> bool:
        return self.client().plans.summary(plan).at_rest

    def diff(self, plan: str) -> str:
        return patch_text(self.client(), plan)

    def apply(self, plan: str, commit: str | None, to_branch: str | None, tree: str | None) -> dict[str, Any]:
        plans = self.client().plans
        plan_id = plans.summary(plan).id
        job = plans.submit_apply(plan_id, commit=commit, to_branch=to_branch, unattended=True, tree=tree)
        return {"plan": plan_id, "job": job.id, "state": "queued"}

    def cancel(self, plan: str, reason: str) -> dict[str, Any]:
        return _shown(self.client().plans.cancel(plan, reason=reason))

    def context(self, question: str, resource: str | None, budget: int | None) -> dict[str, Any]:
        client = self.client()
        resource = self._resource(client, resource)
        found = client.context.ask(
            question,
            resource=resource,
            repository=self.workplace.repository if resource is None else None,
            budget=budget,
            deadline=self.workplace.context_seconds,
            rerank=False,
        )
        return {name: value for name, value in as_json(found).items() if name != "ranking"}

    def _resource(self, client: Client, named: str | None) -> str | None:
        if named is not None or self.workplace.repository is not None:
            return named
        return only_resource(client, "resource")


def _tools(requests: _Requests) -> list[Callable[..., Any]]:
    async def create_plan(
        goal: Annotated[str, Field(description="the goal", min_length=1)],
        resource: _Resource = None,
        model: Annotated[str | None, Field(description="provider/name; default: the user's")] = None,
        actor: Annotated[str | None, Field(description="an actor that the user has defined")] = None,
        checks: Annotated[tuple[str, ...], Field(description="commands that must pass")] = (),
        max_usd: Annotated[Dollars | None, Field(description="limit of the cost")] = None,
        max_tokens: Tokens | None = None,
        seconds: Annotated[Seconds | None, Field(description="time limit in seconds")] = None,
        to_branch: _ToBranch = None,
    ) -> dict[str, Any]:
        """Create a plan for a goal. It runs in a sandbox and is checked and reviewed. Returns at once."""
        terms = GoalOptions(
            resource=resource,
            model=model,
            actor=actor,
            checks=checks,
            max_usd=max_usd,
            max_tokens=max_tokens,
            seconds=seconds,
            to_branch=to_branch,
        )
        return await _answered(lambda: requests.create(goal, terms))

    async def plan_status(
        plan: _Plan,
        wait_seconds: Annotated[float, Field(ge=0, le=50, description="seconds to wait for the plan")] = 0,
    ) -> dict[str, Any]:
        """Return the status of a plan, its changes, checks and the next steps."""
        if wait_seconds:
            await _waited(lambda: requests.rests(plan), wait_seconds)
        return await _answered(lambda: requests.status(plan))

    async def plan_diff(plan: _Plan) -> str:
        """Return the changes of a plan as a patch."""
        return await _answered(lambda: requests.diff(plan))

    async def apply_plan(
        plan: _Plan,
        commit: Annotated[str | None, Field(description="commit with this message")] = None,
        to_branch: _ToBranch = None,
        tree: Annotated[
            str | None, Field(description="refuse unless the result is still this `tree`", max_length=64)
        ] = None,
    ) -> dict[str, Any]:
        """Apply the result of a plan to the user's files, or push it to its git remote, if their profile
        allows that without approval. Returns at once: plan_status shows the outcome.
        """
        return await _answered(lambda: requests.apply(plan, commit, to_branch, tree))

    async def cancel_plan(
        plan: _Plan, reason: Annotated[str, Field(max_length=500)] = "cancelled by another agent"
    ) -> dict[str, Any]:
        """Cancel a plan and all its processes."""
        return await _answered(lambda: requests.cancel(plan, reason))

    async def context(
        question: Annotated[str, Field(min_length=1, max_length=100_000)],
        resource: _Resource = None,
        budget: Annotated[
            int | None, Field(ge=64, le=200_000, description="token limit of the answer")
        ] = None,
    ) -> dict[str, Any]:
        """Find the code relevant to a question. No model is called."""
        return await _answered(lambda: requests.context(question, resource, budget))

    return [create_plan, plan_status, plan_diff, apply_plan, cancel_plan, context]


def _shown(plan: PlanView) -> dict[str, Any]:
    """Return the fields of a plan that other agents see."""
    said = as_json(plan)
    return {name: said[name] for name in _SHOWN} | {
        "checks": [{name: row[name] for name in ("name", "verdict", "stale")} for row in said["checks"]],
        "changes": [{name: row[name] for name in ("path", "change")} for row in said["changes"]],
    }


async def _waited(rests: Callable[[], bool], seconds: float) -> None:
    """Wait until the plan rests, for a limited time. The wait occupies no thread, because all requests share
    the threads.
    """
    import anyio

    pause = LOOK_SECONDS
    with anyio.move_on_after(seconds):
        while not await _answered(rests):
            await anyio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)


async def _answered(ask: Callable[[], T]) -> T:
    """Run a call in a thread, because a client blocks on files, databases and servers."""
    from anyio import to_thread
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        return await to_thread.run_sync(ask)
    except Fault:  # guard: internals stay hidden
        structlog.get_logger().exception("mcp.failed")
        raise ToolError(_FAILED) from None
    except CleverAgentsError as error:
        raise ToolError(redact_text(str(error))) from None
