"""Scripts: the answers of a scripted model, as rules.

A rule has conditions and an answer; the first rule whose conditions hold is used. Matching depends only on
the conversation, so the same conversation gets the same answer in every process and after every restart. Only
`times`, `skip` and `every` count requests. They simulate errors that disappear on a retry, and their counts
live as long as the model or server that uses the script.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from cleveragents.models.model.conversation import Message, MessageRole

__all__ = [
    "Script",
    "ScriptCondition",
    "ScriptRule",
    "ScriptRunner",
    "ScriptedAnswer",
    "ScriptedCall",
    "ScriptedFacts",
    "ScriptedFault",
    "ScriptedUsage",
]

_COUNT = Annotated[int, Field(ge=0)]
_SECONDS = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
_DOLLARS = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


class ScriptCondition(_Part):
    """The conditions of a rule; all of them must hold.

    Texts are regular expressions that may match anywhere.
    """

    system: str | None = Field(default=None, description="matches the system prompt")
    user: str | None = Field(default=None, description="matches the last user message")
    first_user: str | None = Field(default=None, description="matches the first user message")
    answer: str | None = Field(default=None, description="matches the last message if it is a tool result")
    tool: str | None = Field(default=None, description="name of the tool whose result is the last message")
    model: str | None = Field(default=None, description="matches the name of the model")
    turn: _COUNT | None = Field(
        default=None, description="number of model messages since the last user message"
    )
    offered: str | None = Field(default=None, description="name of a tool that the model may call")
    attached: str | None = Field(default=None, description="media type of a file that is attached")

    @field_validator("system", "user", "first_user", "answer", "model")
    @classmethod
    def _is_an_expression(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"is not a regular expression: {error}") from None
        return value


class ScriptedCall(_Part):
    """A tool call. `raw` replaces the arguments verbatim, so that a script can produce invalid arguments."""

    tool: str
    arguments: dict[str, Any] = {}
    raw: str | None = None
    id: str | None = None


class ScriptedUsage(_Part):
    """The token usage that the model reports. Missing values are estimated from the bytes."""

    input: _COUNT | None = None
    output: _COUNT | None = None
    cached: _COUNT = 0
    unsaid: bool = Field(default=False, description="report no usage")


class ScriptedFault(_Part):
    """A simulated failure.

    An HTTP status is returned immediately; all other failures break the answer while it is sent.
    """

    status: Annotated[int, Field(ge=400, le=599)] | None = None
    message: str = "scripted to fail"
    code: str | None = None
    retry_after_seconds: _SECONDS | None = None
    cut_after: _COUNT | None = Field(
        default=None, description="cut the connection after this many pieces of the answer"
    )
    hang: bool = Field(default=False, description="never answer")
    raw: list[str] | None = Field(default=None, description="events to send verbatim instead of the answer")


class ScriptedAnswer(_Part):
    """An answer: its text, tool calls, timing and failure."""

    text: str = ""
    repeat: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=1, description="number of times to repeat the text"
    )
    calls: list[ScriptedCall] = []
    usage: ScriptedUsage = ScriptedUsage()
    cut_off: bool = Field(default=False, description="end as if the answer reached its token limit")
    delay_seconds: _SECONDS = Field(default=0.0, description="delay before the first piece")
    piece_seconds: _SECONDS = Field(default=0.0, description="delay before each further piece")
    fault: ScriptedFault | None = None

    def pieces(self) -> list[str]:
        """Return the streamed pieces of the text: words, or larger pieces of a long text."""
        text = self.text * self.repeat
        if len(text) > 65_536:
            return [text[start : start + 4096] for start in range(0, len(text), 4096)]
        return re.findall(r"\S+\s*|\s+", text)


class ScriptRule(_Part):
    """A rule: its conditions, and either one answer for all turns or one answer for each turn."""

    when: ScriptCondition = ScriptCondition()
    reply: ScriptedAnswer | None = None
    turns: list[ScriptedAnswer] | None = Field(
        default=None, description="answers by turn; the rule does not apply after the last one"
    )
    skip: _COUNT = Field(default=0, description="number of matching requests to skip first")
    times: _COUNT | None = Field(default=None, description="maximum number of requests to answer")
    every: Annotated[int, Field(ge=1)] = Field(default=1, description="answer every n-th request")

    @model_validator(mode="after")
    def _answers(self) -> ScriptRule:
        if (self.reply is None) == (self.turns is None):
            raise ValueError("needs either `reply` or `turns`")
        return self


class ScriptedFacts(_Part):
    """Facts about the scripted model. Prices are in dollars per million tokens."""

    context_tokens: Annotated[int, Field(ge=1)] = 128_000
    output_tokens: Annotated[int, Field(ge=1)] = 8_192
    input_price: _DOLLARS | None = None
    output_price: _DOLLARS | None = None
    cached_price: _DOLLARS | None = None
    image_tokens: Annotated[int, Field(ge=1)] | None = None
    pdf_tokens: Annotated[int, Field(ge=1)] | None = None


class Script(_Part):
    """The rules of one model or server."""

    version: Literal[1] = 1
    facts: ScriptedFacts = ScriptedFacts()
    rules: list[ScriptRule]


@dataclass(frozen=True, slots=True)
class _Scene:
    """The parts of a conversation that rules match."""

    system: str
    user: str
    first_user: str
    turn: int
    answer: str | None
    tool: str | None

    @classmethod
    def of(cls, messages: Sequence[Message]) -> _Scene:
        users = [message.text for message in messages if message.role is MessageRole.USER]
        turn = 0
        tools: dict[str | None, str] = {}
        for message in messages:
            if message.role is MessageRole.USER:
                turn = 0
            elif message.role is MessageRole.ASSISTANT:
                turn += 1
                tools |= {request.id: request.tool for request in message.requests}
        last = messages[-1] if messages else None
        answering = last is not None and last.role is MessageRole.TOOL
        return cls(
            system="\n".join(message.text for message in messages if message.role is MessageRole.SYSTEM),
            user=users[-1] if users else "",
            first_user=users[0] if users else "",
            turn=turn,
            answer=last.text if last is not None and answering else None,
            tool=tools.get(last.request_id) if last is not None and answering else None,
        )


class ScriptRunner:
    """A script in use: finds the answer to a conversation.

    Thread safety:
        Owner: the model or server that created it; any thread may ask.
        Lock: `_lock` guards the counts of requests per rule, for arithmetic only.
        Guarantee: a request is counted once by each rule that matches it, up to and including the rule that
            answers it.
    Cancel safety: no call waits.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self._lock = threading.Lock()
        self._seen = [0] * len(script.rules)

    def answer(
        self,
        messages: Sequence[Message],
        *,
        model: str,
        offered: Sequence[str] = (),
        attached: Sequence[str] = (),
    ) -> ScriptedAnswer | None:
        """Return the answer of the first rule that applies; None if no rule does. `attached` are the media
        types of the attachments.
        """
        scene = _Scene.of(messages)
        for number, rule in enumerate(self.script.rules):
            if rule.when.attached is not None and rule.when.attached not in attached:
                continue
            found = _match(rule, scene, model, offered)
            if found is None:
                continue
            said = _said(rule, scene.turn)
            if said is not None and self._due(number, rule):
                return _filled(said, found)
        return None

    def forget(self) -> None:
        """Reset the counts of requests."""
        self._seen = [0] * len(self.script.rules)

    def _due(self, number: int, rule: ScriptRule) -> bool:
        with self._lock:
            seen = self._seen[number]
            self._seen[number] = seen + 1
        beyond = seen - rule.skip
        if beyond < 0 or beyond % rule.every:
            return False
        return rule.times is None or beyond // rule.every < rule.times


def _said(rule: ScriptRule, turn: int) -> ScriptedAnswer | None:
    if rule.turns is None:
        return rule.reply
    return rule.turns[turn] if turn < len(rule.turns) else None


def _match(rule: ScriptRule, scene: _Scene, model: str, offered: Sequence[str]) -> dict[str, str] | None:
    """Return the named groups of the rule's expressions; None if the rule does not match."""
    when = rule.when
    exact = (
        when.turn is None or when.turn == scene.turn,
        when.tool is None or when.tool == scene.tool,
        when.offered is None or when.offered in offered,
    )
    if not all(exact):
        return None
    searched = (
        (when.system, scene.system),
        (when.first_user, scene.first_user),
        (when.user, scene.user),
        (when.answer, scene.answer),
        (when.model, model),
    )
    groups: dict[str, str] = {}
    for expression, text in searched:
        if expression is None:
            continue
        match = None if text is None else re.search(expression, text)
        if match is None:
            return None
        groups |= {name: value or "" for name, value in match.groupdict().items()}
    return groups


def _filled(answer: ScriptedAnswer, groups: dict[str, str]) -> ScriptedAnswer:
    """Replace each `${name}` by the named group that the rule's expressions matched."""
    if not groups:
        return answer
    calls = [
        call.model_copy(update={"arguments": {k: _fill(v, groups) for k, v in call.arguments.items()}})
        for call in answer.calls
    ]
    return answer.model_copy(update={"text": _fill(answer.text, groups), "calls": calls})


def _fill(value: Any, groups: dict[str, str]) -> Any:
    if isinstance(value, str):
        return Template(value).safe_substitute(groups)
    if isinstance(value, list):
        return [_fill(item, groups) for item in value]
    if isinstance(value, dict):
        return {key: _fill(item, groups) for key, item in value.items()}
    return value
