"""Scripts: what a scripted model answers, rule by rule.

A rule says when it applies and what is answered then; the first one that applies does. Matching looks at the
conversation alone, so the same conversation gets the same answer in every process and after every restart.
Only `times`, `skip` and `every` count requests: they are for misbehaviour that goes away when one tries
again, and their counts last as long as the model or the server that has the script.
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
    """What has to hold, all of it. Texts are regular expressions, searched for anywhere."""

    system: str | None = Field(default=None, description="in the system prompt")
    user: str | None = Field(default=None, description="in the last thing the user said")
    first_user: str | None = Field(default=None, description="in the first thing the user said")
    answer: str | None = Field(default=None, description="in the last tool's answer, when it comes last")
    tool: str | None = Field(default=None, description="the tool whose answer comes last, by its name")
    model: str | None = Field(default=None, description="in the name of the model that is asked")
    turn: _COUNT | None = Field(
        default=None, description="how often the model spoke since the user last did, from 0"
    )
    offered: str | None = Field(default=None, description="a tool that the model may call, by its name")

    @field_validator("system", "user", "first_user", "answer", "model")
    @classmethod
    def _is_an_expression(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"is no regular expression: {error}") from None
        return value


class ScriptedCall(_Part):
    """A tool call. `raw` is written as it stands, in place of the arguments: so that it can be wrong."""

    tool: str
    arguments: dict[str, Any] = {}
    raw: str | None = None
    id: str | None = None


class ScriptedUsage(_Part):
    """Tokens that the model says it took; what is not said is counted, four bytes to a token."""

    input: _COUNT | None = None
    output: _COUNT | None = None
    cached: _COUNT = 0
    unsaid: bool = Field(default=False, description="the model does not say what it took")


class ScriptedFault(_Part):
    """How it misbehaves. An HTTP status is answered at once; the others spoil the answer on its way."""

    status: Annotated[int, Field(ge=400, le=599)] | None = None
    message: str = "scripted to fail"
    code: str | None = None
    retry_after_seconds: _SECONDS | None = None
    cut_after: _COUNT | None = Field(
        default=None, description="the connection is cut after so many pieces of the answer"
    )
    hang: bool = Field(default=False, description="nothing is ever answered")
    raw: list[str] | None = Field(default=None, description="sent in place of the answer, as it stands")


class ScriptedAnswer(_Part):
    """What is said, and how: text, tool calls, how long it takes."""

    text: str = ""
    repeat: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=1, description="how often the text is said, for answers of any size"
    )
    calls: list[ScriptedCall] = []
    usage: ScriptedUsage = ScriptedUsage()
    cut_off: bool = Field(default=False, description="it ends as if it had reached its limit")
    delay_seconds: _SECONDS = Field(default=0.0, description="before the first piece")
    piece_seconds: _SECONDS = Field(default=0.0, description="before each further piece")
    fault: ScriptedFault | None = None

    def pieces(self) -> list[str]:
        """The text as it is streamed: word by word, or in larger pieces where it is long."""
        text = self.text * self.repeat
        if len(text) > 65_536:
            return [text[start : start + 4096] for start in range(0, len(text), 4096)]
        return re.findall(r"\S+\s*|\s+", text)


class ScriptRule(_Part):
    """When it applies, and what is answered: always the same, or by turns."""

    when: ScriptCondition = ScriptCondition()
    reply: ScriptedAnswer | None = None
    turns: list[ScriptedAnswer] | None = Field(
        default=None, description="the answers to the first turn, the second …; after them it does not apply"
    )
    skip: _COUNT = Field(default=0, description="requests that it lets pass first")
    times: _COUNT | None = Field(default=None, description="requests that it answers at most")
    every: Annotated[int, Field(ge=1)] = Field(default=1, description="it answers each so many-th")

    @model_validator(mode="after")
    def _answers(self) -> ScriptRule:
        if (self.reply is None) == (self.turns is None):
            raise ValueError("needs either reply or turns")
        return self


class ScriptedFacts(_Part):
    """What is known of the model. Prices are in dollars per million tokens."""

    context_tokens: Annotated[int, Field(ge=1)] = 128_000
    output_tokens: Annotated[int, Field(ge=1)] = 8_192
    input_price: _DOLLARS | None = None
    output_price: _DOLLARS | None = None
    cached_price: _DOLLARS | None = None


class Script(_Part):
    """All rules of one model or server."""

    version: Literal[1] = 1
    facts: ScriptedFacts = ScriptedFacts()
    rules: list[ScriptRule]


@dataclass(frozen=True, slots=True)
class _Scene:
    """A conversation as rules look at it."""

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
    """A script at work: finds the answer to a conversation.

    Thread safety:
        Owner: the model or the server that it belongs to; any thread may ask.
        Lock: `_lock` guards the counts of requests per rule, for arithmetic only.
        Guarantee: each request is counted once by every rule that fits it, up to the one that answers.
    Cancel safety: no call waits.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self._lock = threading.Lock()
        self._seen = [0] * len(script.rules)

    def answer(
        self, messages: Sequence[Message], *, model: str, offered: Sequence[str] = ()
    ) -> ScriptedAnswer | None:
        """What the first rule that applies says; None where none does."""
        scene = _Scene.of(messages)
        for number, rule in enumerate(self.script.rules):
            found = _match(rule, scene, model, offered)
            if found is None:
                continue
            said = _said(rule, scene.turn)
            if said is not None and self._due(number, rule):
                return _filled(said, found)
        return None

    def forget(self) -> None:
        """Counts from the beginning again."""
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
    """The named groups of its expressions; None if it does not fit."""
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
    """With `${name}` replaced by what the rule's expressions found under that name."""
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
