"""A real, very small model on the real wire: `nox -s real_model` serves it and runs these.

It talks nonsense more often than not. So nothing here is about what it says, only about how it is heard:
pieces, tokens, limits, cancellation.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from cleveragents.config.settings import ModelSettings
from cleveragents.core.errors import ContextTooLong
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.models.catalogue import ModelCatalogue
from cleveragents.models.model.conversation import Message, MessageRole
from cleveragents.models.ports import Model, ModelReply, ModelRequest

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOL = ToolSpec("read", "Reads a file.", Capability.READ, SCHEMA, {})


@pytest.fixture
def model(base_url: str) -> Model:
    settings = ModelSettings(base_url=base_url, timeout_seconds=300.0, retries=0)
    return ModelCatalogue(settings, environment={}, keyring=lambda variable: None).get("openai/smollm2")


def asked(said: str, **more: object) -> ModelRequest:
    messages = [Message(MessageRole.SYSTEM, "You are brief."), Message(MessageRole.USER, said)]
    return ModelRequest(**{"messages": messages, "max_output_tokens": 48, "temperature": 0.0, **more})


def ask(model: Model, request: ModelRequest, pieces: list[str] | None = None) -> ModelReply:
    return asyncio.run(model.reply(request, None if pieces is None else pieces.append))


def test_it_answers_in_pieces_that_make_up_the_whole(model: Model) -> None:
    pieces: list[str] = []
    reply = ask(model, asked("What is the capital of France?"), pieces)
    assert reply.message.text
    assert "".join(pieces) == reply.message.text
    assert len(pieces) > 1


def test_counts_tokens_and_does_not_underestimate_them(model: Model) -> None:
    request = asked("Count: één, zwei, 三, four — 😀 " * 5)
    estimate = model.count_tokens(request)
    reply = ask(model, request)
    assert reply.usage is not None
    assert 0 < reply.usage.input_tokens <= estimate
    assert 0 < reply.usage.output_tokens <= 48


def test_an_answer_without_end_is_cut_off_at_its_limit(model: Model) -> None:
    reply = ask(model, asked("Write a very long story about the sea.", max_output_tokens=16))
    assert reply.cut_off
    assert reply.usage is not None
    assert reply.usage.output_tokens <= 16


def test_an_answer_of_a_given_shape_has_it(model: Model) -> None:
    reply = ask(model, asked("Name a file as JSON.", schema=SCHEMA, max_output_tokens=64))
    if not reply.cut_off:
        assert isinstance(json.loads(reply.message.text)["path"], str)


def test_nonsense_about_tools_is_bounded_and_told(model: Model) -> None:
    """Whatever it makes of the tool: text, a call, or a malformed one that says what is wrong with it."""
    reply = ask(model, asked("Read the file a.txt with the tool.", tools=[TOOL], max_output_tokens=64))
    for request in reply.message.requests:
        assert request.problem is None or request.problem
    assert reply.message.text or reply.message.requests or reply.usage is not None


def test_reports_input_that_is_too_long(model: Model) -> None:
    with pytest.raises(ContextTooLong):
        ask(model, asked("word " * 20_000))


def test_a_cancelled_call_ends_and_the_server_is_free_again(model: Model) -> None:
    async def cancelled() -> ModelReply:
        begun = asyncio.Event()
        request = asked("Write a very long story about the sea.", max_output_tokens=1000)
        calls = [
            asyncio.ensure_future(model.reply(request, lambda piece: begun.set())) for _ in range(2)
        ]  # as many as it answers at once
        await asyncio.wait_for(begun.wait(), 300)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls, timeout=60)
        assert all(call.cancelled() for call in calls)
        return await model.reply(asked("Say yes.", max_output_tokens=4))

    assert asyncio.run(cancelled()).usage is not None
