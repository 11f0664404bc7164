"""Tools: what one is called, what it takes and gives, and what it needs leave for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from cleveragents.core.json_value import JsonValue, thaw
from cleveragents.core.policy import Capability

__all__ = [
    "ACP",
    "AGENT_TOOL",
    "MCP",
    "TOOLS_OF_PLANS",
    "CallState",
    "ToolCall",
    "ToolSpec",
    "approval_digest",
]

TOOLS_OF_PLANS = ("decide", "get_context_budget", "query_history", "request_context")
"""What actors of every plan have besides the tools that are registered."""

ACP = "acp"
"""The tool that calls name which an agent made by itself."""

MCP = "mcp"
"""The tool that calls name which request the start of an MCP server, or a connection to one."""

AGENT_TOOL = "agent"
"""Runs other agents, for nodes of actors alone: no list of tools has it."""

_ROUNDS = 50_000
"""Some 20 ms per guess, so that a secret among the arguments is not found by trying likely ones."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model, a policy and a reader of the docs see it. Schemas are JSON Schema.

    `writes`: it may change files, so it gets a checkpoint before and a changeset for what it does.
    `runs_commands`: its changes are found by looking at the whole sandbox afterwards.
    """

    name: str
    description: str
    capability: Capability
    input_schema: Mapping[str, JsonValue]
    output_schema: Mapping[str, JsonValue]
    writes: bool = False
    runs_commands: bool = False


class CallState(str, Enum):
    """How far a tool call got. A STARTED one without a living worker was interrupted.

    ENDING: the tool is done and its result is kept; what it changed is being recorded.
    """

    ASKED = "asked"
    STARTED = "started"
    ENDING = "ending"
    ENDED = "ended"
    FAILED = "failed"
    REVERTED = "reverted"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a plan, as the store holds it; `number`, from 1, also names the checkpoint before it.

    `step` names what it was made for. A step of a strategy that makes calls of its own, as a model does,
    names each by the step, a dot and whatever tells them apart: `2.call_abc` is a part of step `2`.

    `arguments` are for reading, with secrets masked. `digest` names the exact ones that a person was asked to
    approve; None for a call that needed no approval, and for requests that older versions recorded.
    """

    plan_id: str
    number: int
    call_id: str
    tool: str
    arguments: Mapping[str, JsonValue]
    state: CallState
    started_at: datetime
    changeset_id: str | None = None
    approval: str | None = None
    result: JsonValue = None
    error: str | None = None
    ended_at: datetime | None = None
    step: str | None = None
    digest: str | None = None

    @property
    def strategy_step(self) -> str | None:
        """The step of the strategy that it belongs to."""
        return None if self.step is None else self.step.partition(".")[0]

    @property
    def stopped_its_run(self) -> bool:
        """Whether it is another agent's that failed: then its actor stopped there, and goes on there."""
        return self.tool == AGENT_TOOL and self.error is not None

    @property
    def is_open(self) -> bool:
        """Whether it is under way, or was when whoever made it died: nothing says yet how it ended."""
        return self.state in (CallState.STARTED, CallState.ENDING)

    @property
    def is_part(self) -> bool:
        """Whether it is one of the calls that a step made, and not the step itself."""
        return self.step is not None and "." in self.step


def approval_digest(plan_id: str, tool: str, arguments: Mapping[str, JsonValue]) -> str:
    """Return what an approval is bound to: the plan, the tool and the arguments before anything is masked."""
    text = json.dumps([tool, arguments], sort_keys=True, default=thaw)
    return hashlib.pbkdf2_hmac("sha256", text.encode(), plan_id.encode(), _ROUNDS).hex()
