"""An actor host with scripted model replies, and functions as tools."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from cleveragents.actors.ports import AgentRequest, AgentUpdate, ToolAnswer
from cleveragents.core.errors import UnknownTool
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.conversation import Message, MessageRole, ToolRequest, Usage
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest

__all__ = ["RecordedModelCall", "ScriptedHost", "asks_for", "says"]

Reply = str | ModelReply | BaseException
Script = Callable[["RecordedModelCall"], Reply]
ToolFunction = Callable[..., "str | ToolAnswer"]


@dataclass(frozen=True, slots=True)
class RecordedModelCall:
    """A model call as the host saw it."""

    model: str | None
    request: ModelRequest
    key: str
    actor: str
    node: str

    @property
    def last(self) -> str:
        """The last message."""
        return self.request.messages[-1].text


def says(text: str, *, usage: Usage | None = None, cut_off: bool = False) -> ModelReply:
    """Return a reply with text only."""
    return ModelReply(Message(MessageRole.ASSISTANT, text), "scripted", usage, cut_off)


def asks_for(*calls: tuple[str, Mapping[str, JsonValue]] | ToolRequest, text: str = "") -> ModelReply:
    """Return a reply that requests tool calls."""
    requests = tuple(
        call if isinstance(call, ToolRequest) else ToolRequest(f"call_{number}", call[0], call[1])
        for number, call in enumerate(calls)
    )
    return ModelReply(Message(MessageRole.ASSISTANT, text, requests), "scripted")


class ScriptedHost:
    """Passes the contract of `ActorHost`.

    Replies come from a list, in order, or from a function of the call; a call that was completed under its
    key or step is not repeated.

    `gate`, if given, blocks every model call until it is set; `thinking` counts the blocked calls. The tools
    named in `writing` report that they may change files.

    Thread safety:
        Owner: the test. Lock: `_lock` guards the recorded calls and the rest of the script, for list
            operations only. Guarantee: each reply of the list is used once; every call is recorded.
    Cancel safety: a cancelled call has used its reply and is recorded; it does not count as completed.
    """

    def __init__(
        self,
        replies: Sequence[Reply] | Script,
        tools: Mapping[str, ToolFunction] | None = None,
        *,
        facts: ModelFacts | None = None,
        stand_in: ModelFacts | None = None,
        gate: threading.Event | None = None,
        writing: Collection[str] = (),
    ) -> None:
        self._lock = threading.Lock()
        self._replies = None if callable(replies) else list(replies)
        self._script = replies if callable(replies) else None
        self._tools = dict(tools or {})
        self._facts = facts or ModelFacts("scripted", 100_000, 4_000)
        self._stand_in = stand_in
        self._finished: dict[str, ModelReply] = {}
        self._answered: dict[str, ToolAnswer] = {}
        self._gate = gate
        self._writing = frozenset(writing)
        self.thoughts: list[RecordedModelCall] = []
        self.uses: list[tuple[str, dict[str, JsonValue], str]] = []
        self.times: list[Callable[[], float] | None] = []
        self.refused: list[tuple[str, str, str]] = []
        self.sessions: list[tuple[AgentRequest, str]] = []
        self.thinking = threading.Semaphore(0)
        self.cancelled = 0

    def facts(self, model: str | None) -> ModelFacts:
        return self._facts

    def models(self, model: str | None) -> Sequence[ModelFacts]:
        return [self._facts] if self._stand_in is None else [self._facts, self._stand_in]

    def models_nowait(self, model: str | None) -> Sequence[ModelFacts] | None:
        return [self._facts] if self._stand_in is None else [self._facts, self._stand_in]

    def count_tokens(self, model: str | None, request: ModelRequest) -> int:
        """Return one token for every four characters, plus some for each message and tool."""
        texts = sum(len(message.text) + len(str(message.requests or "")) for message in request.messages)
        return texts // 4 + 4 * len(request.messages) + 20 * len(request.tools)

    async def think(
        self,
        model: str | None,
        request: ModelRequest,
        *,
        key: str,
        actor: str,
        node: str,
        on_token: Callable[[str], None] | None = None,
    ) -> ModelReply:
        if key in self._finished:
            return self._finished[key]
        thought = RecordedModelCall(model, request, key, actor, node)
        reply = self._next(thought)
        self.thinking.release()
        try:
            while self._gate is not None and not self._gate.is_set():
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(reply, BaseException):
            raise reply
        answer = says(reply) if isinstance(reply, str) else reply
        if on_token is not None:
            for word in answer.message.text.split(" "):
                on_token(word)
        self._finished[key] = answer
        return answer

    def specs(self, names: Sequence[str]) -> Sequence[ToolSpec]:
        unknown = [name for name in names if name not in self._tools]
        if unknown:
            raise UnknownTool(unknown[0], tuple(self._tools))
        return [
            ToolSpec(
                name, f"does {name}", Capability.READ, {"type": "object"}, {}, writes=name in self._writing
            )
            for name in names
        ]

    def use(
        self,
        tool: str,
        arguments: Mapping[str, JsonValue],
        *,
        step: str,
        seconds_left: Callable[[], float] | None = None,
    ) -> ToolAnswer:
        if step in self._answered:
            return self._answered[step]
        with self._lock:
            self.uses.append((tool, dict(arguments), step))
            self.times.append(seconds_left)
        answer = self._tools[tool](**arguments)
        self._answered[step] = ToolAnswer(answer) if isinstance(answer, str) else answer
        return self._answered[step]

    def refuse(self, tool: str, arguments: Mapping[str, JsonValue], reason: str, *, step: str) -> None:
        with self._lock:
            self.refused.append((tool, reason, step))

    def converse(
        self,
        request: AgentRequest,
        *,
        step: str,
        told: Callable[[AgentUpdate], None],
        seconds_left: Callable[[], float] | None = None,
    ) -> str:
        """Return the result of the tool function named `agent`."""
        with self._lock:
            self.sessions.append((request, step))
            self.times.append(seconds_left)
        said = self._tools["agent"](request=request, told=told)
        return said if isinstance(said, str) else said.text

    def _next(self, thought: RecordedModelCall) -> Reply:
        with self._lock:
            self.thoughts.append(thought)
            if self._replies is not None:
                return self._replies.pop(0)
        assert self._script is not None
        return self._script(thought)
