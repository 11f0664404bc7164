"""An MCP server: other agents have plans made, watch them, read their diffs and ask for context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field

from cleveragents import __version__
from cleveragents.api.handover import Dollars, Goal, Handover, Seconds, Tokens
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.core.text.redaction import redact_text

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.tools import Tool

__all__ = ["INSTRUCTIONS", "server_for"]

T = TypeVar("T")

INSTRUCTIONS = """\
Hand a goal over with create_plan. It is worked on in a sandbox, not in the user's files: watch it with
plan_status (wait_seconds saves you calls), read what it changed with plan_diff. When `needs` is set, a person
has to act: tell them what `next_steps` says. apply_plan brings the result into the files where the user's
profile allows it. context finds the code that matters for a question."""

_READ_ONLY = frozenset({"plan_status", "plan_diff", "context"})
_FOR_GOOD = frozenset({"apply_plan", "cancel_plan"})

_Plan = Annotated[str, Field(description="the plan's id, or as much of it as is unambiguous", max_length=64)]
_Resource = Annotated[
    str | None, Field(description="a registered resource; without one, where this server was started")
]
_ToBranch = Annotated[
    str | None,
    Field(
        max_length=200,
        description="of a git remote: the new branch that the result is pushed to; {plan} is the plan's id",
    ),
]


def server_for(handover: Handover) -> MCPServer:
    """The server, to be run on some transport. Its tools never raise anything but what a caller can read."""
    from mcp.server import MCPServer

    tools = [_offered(tool) for tool in _tools(handover)]
    # What goes wrong is answered; the log of whoever started us is not the place for it.
    return MCPServer(
        "cleveragents", instructions=INSTRUCTIONS, version=__version__, tools=tools, log_level="WARNING"
    )


def _offered(tool: Callable[..., Any]) -> Tool:
    from mcp.server.mcpserver.tools import Tool
    from mcp.types import ToolAnnotations

    reads = tool.__name__ in _READ_ONLY
    hints = ToolAnnotations(read_only_hint=reads, destructive_hint=tool.__name__ in _FOR_GOOD)
    made = Tool.from_function(tool, description=tool.__doc__, annotations=hints)
    arguments = made.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"  # guard: a limit that is misspelt is no limit
    arguments.model_rebuild(force=True)
    made.parameters = arguments.model_json_schema(by_alias=True)
    return made


def _tools(handover: Handover) -> list[Callable[..., Any]]:
    async def create_plan(
        goal: Annotated[str, Field(description="what is wanted, in words", min_length=1)],
        resource: _Resource = None,
        model: Annotated[str | None, Field(description="provider/name; the user's default")] = None,
        checks: Annotated[tuple[str, ...], Field(description="commands that must pass")] = (),
        max_usd: Annotated[Dollars | None, Field(description="what it may cost")] = None,
        max_tokens: Tokens | None = None,
        seconds: Annotated[Seconds | None, Field(description="how long it may take")] = None,
        to_branch: _ToBranch = None,
    ) -> dict[str, Any]:
        """Has a goal reached as a plan: done in a sandbox, checked, reviewed. Returns at once."""
        asked = Goal(goal, resource, model, checks, max_usd, max_tokens, seconds, to_branch)
        return await _answer(lambda: handover.create(asked))

    async def plan_status(
        plan: _Plan,
        wait_seconds: Annotated[float, Field(ge=0, le=50, description="wait so long for it to rest")] = 0,
    ) -> dict[str, Any]:
        """Where a plan stands, what it changed, what its checks said, what somebody has to do about it."""
        return await _answer(lambda: handover.status(plan, wait_seconds))

    async def plan_diff(plan: _Plan) -> str:
        """What a plan changed, as a patch."""
        return await _answered(lambda: handover.diff(plan))

    async def apply_plan(
        plan: _Plan,
        commit: Annotated[str | None, Field(description="commits it with this message")] = None,
        to_branch: _ToBranch = None,
    ) -> dict[str, Any]:
        """Brings a plan's result into the user's files, or pushes it to its git remote, if their profile
        allows that without asking them. Returns at once: plan_status tells what came of it."""
        return await _answer(lambda: handover.apply(plan, commit, to_branch))

    async def cancel_plan(
        plan: _Plan, reason: Annotated[str, Field(max_length=500)] = "cancelled by another agent"
    ) -> dict[str, Any]:
        """Stops a plan and all its processes."""
        return await _answer(lambda: handover.cancel(plan, reason))

    async def context(
        question: Annotated[str, Field(min_length=1, max_length=100_000)],
        resource: _Resource = None,
        budget: Annotated[int | None, Field(ge=64, le=200_000, description="tokens of the answer")] = None,
    ) -> dict[str, Any]:
        """Finds the code of a repository that matters for a question. No model is asked."""
        return await _answer(lambda: handover.context(question, resource, budget))

    return [create_plan, plan_status, plan_diff, apply_plan, cancel_plan, context]


async def _answer(ask: Callable[[], Mapping[str, JsonValue]]) -> dict[str, Any]:
    answer = thaw(await _answered(ask))
    assert isinstance(answer, dict)
    return answer


async def _answered(ask: Callable[[], T]) -> T:
    """On a thread, because everything below waits for files and databases."""
    from anyio import to_thread
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        return await to_thread.run_sync(ask)
    except CleverAgentsError as error:
        raise ToolError(redact_text(str(error))) from None
