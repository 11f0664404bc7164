"""Tools: their names, arguments, results and required capabilities; and the calls of a plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from enum import Enum

from msgspec import Struct

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

TOOLS_OF_PLANS = (
    "correct_line",
    "decide",
    "edit_blocks",
    "get_context_budget",
    "query_history",
    "request_context",
    "show_files",
)
"""The tools that actors of every plan have besides the registered ones."""

ACP = "acp"
"""The tool name in calls that an external agent made itself."""

MCP = "mcp"
"""The tool name in calls that request to start an MCP server or to connect to one."""

AGENT_TOOL = "agent"
"""Runs external agents, only for nodes of actors: no list of tools contains it."""

_ROUNDS = 50_000
"""Rounds of the approval digest: each guess costs about 20 ms, so that a secret in the arguments cannot be
found by trying likely values.
"""


class ToolSpec(Struct, frozen=True):
    """A tool as a model, a policy and a reader of the docs see it. Schemas are JSON Schema.

    `writes`: the tool may change files, so each call has a checkpoint before it and a changeset.
    `runs_commands`: its changes are found by comparing the whole sandbox afterwards.
    """

    name: str
    description: str
    capability: Capability
    input_schema: Mapping[str, JsonValue]
    output_schema: Mapping[str, JsonValue]
    writes: bool = False
    runs_commands: bool = False


class CallState(str, Enum):
    """The progress of a tool call. A STARTED call without a live worker was interrupted.

    ENDING: the tool is done and its result is stored; its changes are being recorded.
    """

    ASKED = "asked"
    STARTED = "started"
    ENDING = "ending"
    ENDED = "ended"
    FAILED = "failed"
    REVERTED = "reverted"


class ToolCall(Struct, frozen=True):
    """One stored call of a plan; `number`, from 1, also identifies the checkpoint before it.

    `step` is the step that the call belongs to. A step that makes several calls, as a model does, appends a
    dot and an id: `2.call_abc` belongs to step `2`.

    `arguments` are for display, with secrets masked. `digest` identifies the exact arguments that a person
    was asked to approve; None for a call that needed no approval, and for requests recorded by older
    versions. `approval` is the answer of a person, and `reason` why it was denied; `rule` is the rule that
    approved the call instead of a person.
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
    rule: str | None = None
    reason: str | None = None

    @property
    def strategy_step(self) -> str | None:
        """The step of the strategy that the call belongs to."""
        return None if self.step is None else self.step.partition(".")[0]

    @property
    def stopped_its_run(self) -> bool:
        """Whether this is a failed call of an external agent: the actor stopped at it and resumes it."""
        return self.tool == AGENT_TOOL and self.error is not None

    @property
    def is_over(self) -> bool:
        """Whether the call is over, whatever its outcome."""
        return self.state in (CallState.ENDED, CallState.FAILED)

    @property
    def is_open(self) -> bool:
        """Whether the call is running, or its process died before the outcome was known."""
        return self.state in (CallState.STARTED, CallState.ENDING)

    @property
    def is_part(self) -> bool:
        """Whether this is one of several calls that a step makes."""
        return self.step is not None and "." in self.step


def approval_digest(plan_id: str, tool: str, arguments: Mapping[str, JsonValue]) -> str:
    """Return the digest that an approval is bound to: of the plan, the tool and the unmasked arguments."""
    text = json.dumps([tool, arguments], sort_keys=True, default=thaw)
    return hashlib.pbkdf2_hmac("sha256", text.encode(), plan_id.encode(), _ROUNDS).hex()
