"""A model that answers from a script, in this process, for tests, demonstrations and trying out actors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.core.errors import ModelRefused, ModelUnavailable
from cleveragents.models.failures import FailedCall, failure_of_status
from cleveragents.models.langchain_model import tool_request, well_formed
from cleveragents.models.model.budget import Price
from cleveragents.models.model.conversation import Message, MessageRole, ToolRequest, Usage
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest
from cleveragents.models.script import ScriptedAnswer, ScriptedCall, ScriptedFault, ScriptRunner
from cleveragents.models.script_document import load_script
from cleveragents.models.tokens import estimate_request
from cleveragents.models.usage_limits import usage_limit_in

if TYPE_CHECKING:
    from cleveragents.models.script import Script

__all__ = ["ScriptedModel", "scripted_facts", "scripted_usage", "written"]

_BYTES_READ = 8
_BYTES_WRITTEN = 4
"""Bytes per token if the script does not state its usage. The result is below any estimate."""
_PICODOLLARS_A_TOKEN = 10**6


def scripted_facts(name: str, script: Script) -> ModelFacts:
    """Return the facts that a script declares."""
    facts = script.facts
    price = None
    if facts.input_price is not None and facts.output_price is not None:
        cached = None if facts.cached_price is None else _per_token(facts.cached_price)
        price = Price(_per_token(facts.input_price), _per_token(facts.output_price), cached)
    return ModelFacts(
        name,
        facts.context_tokens,
        facts.output_tokens,
        price,
        image_tokens=facts.image_tokens,
        pdf_tokens=facts.pdf_tokens,
    )


class ScriptedModel:
    """A `Model` that answers from a script.

    Any number of calls may run concurrently, on any event loop; see `ScriptRunner`.
    """

    def __init__(
        self,
        name: str,
        script: Script,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._facts = scripted_facts(name, script)
        self._scripting = ScriptRunner(script)
        self._sleep = sleep

    @classmethod
    def from_file(cls, name: str, path: Path) -> ScriptedModel:
        """Create a model from a script file."""
        return cls(name, load_script(path))

    @property
    def facts(self) -> ModelFacts:
        return self._facts

    def count_tokens(self, request: ModelRequest) -> int:
        return estimate_request(request) + self._facts.attachment_tokens(request.attachments)

    async def reply(self, request: ModelRequest, on_token: Callable[[str], None] | None = None) -> ModelReply:
        offered = [tool.name for tool in request.tools]
        name = self._facts.name
        attached = [one.media_type.value for one in request.attachments]
        answer = self._scripting.answer(request.messages, model=name, offered=offered, attached=attached)
        if answer is None:
            last = request.messages[-1].text if request.messages else ""
            raise ModelRefused(name, f"no rule of the script matches; the last message is {last[:80]!r}")
        if answer.delay_seconds:
            await self._sleep(answer.delay_seconds)
        await self._misbehave(answer.fault, request)
        await self._speak(answer, on_token)
        usage = None if answer.usage.unsaid else scripted_usage(answer, request.messages)
        requests = tuple(_requested(call, number, answer.cut_off) for number, call in enumerate(answer.calls))
        message = Message(MessageRole.ASSISTANT, well_formed(answer.text * answer.repeat), requests)
        return ModelReply(message, name, usage, answer.cut_off)

    async def _misbehave(self, fault: ScriptedFault | None, request: ModelRequest) -> None:
        if fault is None:
            return
        if fault.hang:
            await asyncio.Event().wait()
        name = self._facts.name
        if fault.status is not None:
            subject = FailedCall(name, self.count_tokens(request), self._facts.context_tokens)
            said = f"{fault.code}: {fault.message}" if fault.code else fault.message
            wait = fault.retry_after_seconds
            limit = usage_limit_in(fault.status, said, retry_after=wait, now=datetime.now(UTC))
            raise failure_of_status(subject, fault.status, said, wait, limit)
        if fault.raw is not None:
            raise ModelUnavailable(name, "unexpected response")

    async def _speak(self, answer: ScriptedAnswer, on_token: Callable[[str], None] | None) -> None:
        pieces = [*answer.pieces(), *("" for _ in answer.calls)]
        cut_after = None if answer.fault is None else answer.fault.cut_after
        for number, piece in enumerate(pieces[:cut_after]):
            if answer.piece_seconds and number:
                await self._sleep(answer.piece_seconds)
            if on_token is not None:
                on_token(piece)
        if cut_after is not None:
            raise ModelUnavailable(self._facts.name, "the connection was lost during the answer")


def written(call: ScriptedCall) -> str:
    """Return the arguments of a call as the model writes them."""
    return call.raw if call.raw is not None else json.dumps(call.arguments, ensure_ascii=False)


def scripted_usage(answer: ScriptedAnswer, messages: Sequence[Message]) -> Usage:
    """Return the usage that the script declares, or an estimate from the bytes of the conversation and the
    answer.
    """
    said = answer.usage
    output = len((answer.text * answer.repeat).encode()) + sum(len(written(call)) for call in answer.calls)
    counted = sum(len(message.text.encode("utf-8", "surrogatepass")) for message in messages)
    return Usage(
        said.input if said.input is not None else -(-counted // _BYTES_READ),
        said.output if said.output is not None else -(-output // _BYTES_WRITTEN),
        said.cached,
    )


def _requested(call: ScriptedCall, number: int, cut_off: bool) -> ToolRequest:
    return tool_request(call.id or f"call_{number}", call.tool, written(call), cut_off=cut_off)


def _per_token(dollars_a_million: float) -> int:
    return round(dollars_a_million * _PICODOLLARS_A_TOKEN)
