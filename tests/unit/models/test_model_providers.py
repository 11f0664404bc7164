"""Anthropic and Google, each against a small stand-in for its server; and the requests to OpenAI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.core.errors import ContextTooLong, ModelRefused, ModelUnavailable
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.models.langchain_model import (
    ChatInput,
    LangChainModel,
    ReplyChunk,
    ToolNames,
    lc_messages,
    lc_tools,
)
from cleveragents.models.model.conversation import Message, MessageRole, ToolRequest, Usage
from cleveragents.models.ports import Model, ModelFacts, ModelReply, ModelRequest
from cleveragents.models.provider import ONE_CALL_EACH, ModelSpec, Provider
from cleveragents.models.providers import anthropic, google, openai
from cleveragents.models.script_document import read_script
from cleveragents.testing.scripted_server import ScriptedServer
from tests import model_wires
from tests.model_wires import Wire, serving

# Found without importing: imports take seconds, and every collection would pay for them.
if find_spec("langchain_openai") is None:
    pytest.skip("langchain_openai is not installed", allow_module_level=True)

KEY = "sk-ant-a-key-of-nobody"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = [ToolSpec("mail.send", "Sends.", Capability.READ, SCHEMA, {})]


def opened(provider: Provider, url: str) -> Model:
    facts = ModelFacts(f"{provider.name}/model", 1000, 100)
    name = "claude-opus-4-6" if provider.name == "anthropic" else "model"
    return provider.open(ModelSpec(facts=facts, model=name, timeout_seconds=60, key=KEY, base_url=url))


@dataclass
class Stand:
    """A model of one provider, and the requests that its server received."""

    model: Model
    wire: Wire
    pieces: list[str]

    def ask(self, *said: str | Message, **more: object) -> ModelReply:
        messages = [Message(MessageRole.USER, one) if isinstance(one, str) else one for one in said]
        request = ModelRequest(**{"messages": messages, "max_output_tokens": 64, "tools": TOOLS, **more})
        return asyncio.run(self.model.reply(request, self.pieces.append))


@pytest.fixture(params=["anthropic", "google"])
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    provider = {"anthropic": anthropic, "google": google}[request.param].PROVIDER
    with serving(getattr(model_wires, request.param)) as wire:
        yield Stand(opened(provider, wire.url), wire, [])


def test_an_answer_with_a_call_comes_over_the_wire(stand: Stand) -> None:
    reply = stand.ask("hello")
    (call,) = reply.message.requests
    assert reply.message.text == "Hello there"
    assert (call.tool, call.arguments, call.problem) == ("mail.send", {"path": "a"}, None)
    assert reply.usage == Usage(25, 9, 5)
    assert "".join(stand.pieces) == "Hello there"
    assert not reply.cut_off


def test_the_key_goes_in_its_header_and_the_connection_is_closed_after_the_call(stand: Stand) -> None:
    stand.ask("hello")
    (headers,) = stand.wire.headers
    sent_as = {headers.get(name) for name in ("x-api-key", "authorization", "x-goog-api-key")}
    assert sent_as & {KEY, f"Bearer {KEY}"}
    assert headers["connection"] == "close"


def test_a_conversation_with_tools_uses_the_providers_format(stand: Stand) -> None:
    calls = (ToolRequest("0", "mail.send", {"path": "x"}), ToolRequest("0", "odd name!", {}, "not JSON"))
    stand.ask(
        Message(MessageRole.SYSTEM, "Be brief."),
        "hello",
        Message(MessageRole.ASSISTANT, "I send.", calls),
        Message(MessageRole.TOOL, "sent", request_id="0"),
        Message(MessageRole.TOOL, "the arguments are not JSON", request_id="0"),
        Message(MessageRole.ASSISTANT, ""),
        Message(MessageRole.SYSTEM, "Be quick."),
        tools=TOOLS,
        temperature=0.5,
    )
    (body,) = stand.wire.bodies
    told = json.dumps(body)
    assert "Be brief.\\n\\nBe quick." in told
    assert "mail_send" in told
    assert "odd_name_" in told
    assert "mail.send" not in told
    assert "0.5" in told
    assert "64" in told
    conversation = body.get("messages") or body["contents"]
    assert len(conversation) == 3  # the results are sent together, empty messages are left out


def test_the_schema_of_an_answer_is_sent_as_text(stand: Stand) -> None:
    stand.ask("hello", schema=SCHEMA)
    assert "It has to fit this JSON Schema" in json.dumps(stand.wire.bodies[0])


def test_the_schema_of_an_answer_is_sent_as_a_parameter(stand: Stand) -> None:
    with suppress(ModelUnavailable):  # Anthropic's stand-in calls a tool, and none was offered
        stand.ask("hello", schema=SCHEMA, tools=())
    (body,) = stand.wire.bodies
    sent = body.get("output_config", {}).get("format", {}).get("schema") or body["generationConfig"]
    assert (sent.get("responseJsonSchema") or sent)["properties"] == SCHEMA["properties"]


@pytest.mark.parametrize("part", [{"type": ["integer", "null"]}, {}])
def test_a_schema_that_a_provider_cannot_express_is_sent_as_text(stand: Stand, part: dict[str, Any]) -> None:
    stand.ask("hello", schema={"type": "object", "properties": {"parent": part}})
    (body,) = stand.wire.bodies
    assert "output_config" not in body
    assert "It has to fit this JSON Schema" in json.dumps(body)


@pytest.mark.parametrize("model", ["claude-sonnet-4-20250514", "claude-3-7-sonnet-latest"])
def test_old_models_of_anthropic_get_the_schema_as_text_only(model: str) -> None:
    request = ModelRequest(messages=(), max_output_tokens=64, schema=SCHEMA)
    assert "response_format" not in anthropic.options(request, model)
    assert "response_format" in anthropic.options(request, "claude-opus-4-6")


def test_a_limit_that_was_reached_is_seen(stand: Stand) -> None:
    assert stand.ask("up to the limit").cut_off


def test_half_an_answer_is_an_error(stand: Stand) -> None:
    with pytest.raises(ModelUnavailable, match="lost during the answer"):
        stand.ask("cut it")


def test_an_answer_that_a_filter_stopped_is_refused(stand: Stand) -> None:
    with pytest.raises(ModelRefused, match="stopped the answer"):
        stand.ask("refuse it")


def test_failures_are_translated_to_our_errors(stand: Stand) -> None:
    with pytest.raises(ModelUnavailable) as busy:
        stand.ask("busy")
    assert busy.value.retry_after_seconds == 3
    with pytest.raises(ContextTooLong) as long:
        stand.ask("too long")
    assert (long.value.needed, long.value.limit) == (250_000, 200_000)
    with pytest.raises(ModelRefused, match=r"the API key was rejected; check [A-Z_]+_API_KEY"):
        stand.ask("key")


def test_a_server_that_is_not_there_is_unavailable(stand: Stand) -> None:
    provider = {"anthropic/model": anthropic, "google/model": google}[stand.model.facts.name].PROVIDER
    stand.model = opened(provider, "http://127.0.0.1:9")
    with pytest.raises(ModelUnavailable, match="the connection failed"):
        stand.ask("hello")


# ── requests to OpenAI ────────────────────────────────────────────────────────────────────────────


def sent(**more: object) -> dict[str, object]:
    """Return what a server of OpenAI's protocol receives for such a request."""
    with ScriptedServer(read_script("rules: [{reply: {text: hi}}]", "s"), key=KEY) as server:
        model = opened(openai.PROVIDER, server.base_url)
        request = ModelRequest(
            **{"messages": [Message(MessageRole.USER, "hello")], "max_output_tokens": 64, **more}
        )
        asyncio.run(model.reply(request))
        (body,) = server.bodies()
        return dict(body)


def test_limits_are_sent_under_both_names_that_servers_know() -> None:
    body = sent(temperature=0.25)
    assert (body["max_tokens"], body["max_completion_tokens"], body["temperature"]) == (64, 64, 0.25)
    assert body["stream_options"] == {"include_usage": True}
    assert "tools" not in body


@pytest.mark.parametrize(("model", "system"), [("m", "system"), ("o3", "developer")])
def test_the_request_body_equals_the_librarys(model: str, system: str) -> None:
    """When streaming, the body takes a shorter way through the library, and is the same as
    by the longer one.
    """
    from cleveragents.models.plain_chat_openai import PlainChatOpenAI

    arguments = {"path": "ä", "deep": {"list": [1, None, 2.5]}}
    told = [
        Message(MessageRole.SYSTEM, "You read."),
        Message(MessageRole.USER, "Read ä."),
        Message(
            MessageRole.ASSISTANT, "", (ToolRequest("x", "read", arguments), ToolRequest("x", "no.such", {}))
        ),
        Message(MessageRole.TOOL, "its text", request_id="x"),
        Message(MessageRole.TOOL, "", request_id="x"),
        Message(MessageRole.ASSISTANT, ""),
        Message(MessageRole.SYSTEM, "You are brief."),
        Message(MessageRole.ASSISTANT, "I read it.", (ToolRequest("y", "read", {}),)),
        Message(MessageRole.TOOL, "more", request_id="y"),
        Message(MessageRole.ASSISTANT, "There."),
        Message(MessageRole.USER, "Thanks."),
    ]
    names = ToolNames(["read"])
    spec = ToolSpec("read", "It reads.", Capability.READ, SCHEMA, {})
    tools = lc_tools(ModelRequest(messages=[], max_output_tokens=8, tools=[spec]), names)
    talk = ChatInput(told, names, tools, {"max_tokens": 9, "extra_body": {"seed": 7}})
    with ScriptedServer(read_script("rules: [{reply: {text: hi}}]", "s"), key=KEY) as server:
        chat = PlainChatOpenAI(
            model=model,
            api_key=KEY,
            base_url=server.base_url,
            default_headers=ONE_CALL_EACH,
            stream_usage=True,
        )

        async def both() -> None:
            speaker = chat.bind_tools(tools)
            assert [chunk async for chunk in speaker.astream(lc_messages(told, names), **talk.options)]
            assert [piece async for piece in chat.pieces(talk)]

        asyncio.run(both())
        longer, shorter = server.bodies()
    assert shorter == longer
    assert [message["role"] for message in shorter["messages"]] == [
        system,
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert shorter["seed"] == 7


def test_a_schema_is_sent_as_the_form_of_the_answer() -> None:
    body = sent(schema=SCHEMA)
    wanted = {"name": "answer", "schema": SCHEMA, "strict": False}
    assert body["response_format"] == {"type": "json_schema", "json_schema": wanted}


def test_tools_with_colliding_aliases_are_distinguished() -> None:
    tools = [ToolSpec(name, "It.", Capability.READ, SCHEMA, {}) for name in ("a.b", "a_b", "a/b")]
    told = json.dumps(sent(tools=tools)["tools"])
    assert [name for name in ("a_b", "a_b_2", "a_b_3") if f'"{name}"' in told] == ["a_b", "a_b_2", "a_b_3"]
    names = ToolNames(["a.b", "a_b", "a/b", "x" * 99])
    assert names.outside("a_b") == "a_b"
    assert [names.inside(names.outside(name)) for name in ("a.b", "a_b", "a/b", "x" * 99)] == [
        "a.b",
        "a_b",
        "a/b",
        "x" * 99,
    ]


def test_variants_of_the_protocol_are_understood() -> None:
    """Text in parts, a call without a number, an empty choice, usage without details."""
    raw = [
        '{"choices": [{"delta": {"role": "assistant", "content": [{"type": "text", "text": "Hel"}, {}]}}]}',
        '{"choices": [{"delta": {"content": "lo", "reasoning": 7}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"id": "x", "function": {"name": "read"}}]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "{}"}}, {"type": "function"}]}}]}',
        '{"choices": [{"delta": null, "finish_reason": "tool_calls"}]}',
        '{"choices": null, "usage": {"prompt_tokens": 3, "completion_tokens": 2}}',
    ]
    script = json.dumps({"rules": [{"reply": {"fault": {"raw": raw}}}]})
    with ScriptedServer(read_script(script, "s"), key=KEY) as server:
        model = opened(openai.PROVIDER, server.base_url)
        asked = ModelRequest(messages=[Message(MessageRole.USER, "hello")], max_output_tokens=64)
        reply = asyncio.run(model.reply(asked))
    assert reply.message.text == "Hello"
    assert [(call.id, call.tool, call.problem) for call in reply.message.requests] == [("x", "read", None)]
    assert reply.usage == Usage(3, 2)


def test_a_gateways_error_page_is_reported_by_its_status() -> None:
    with serving(lambda text: (502, {"Content-Type": "text/html"}, b"<html>bad gateway</html>")) as wire:
        model = opened(openai.PROVIDER, wire.url)
        asked = ModelRequest(messages=[Message(MessageRole.USER, "hello")], max_output_tokens=64)
        with pytest.raises(ModelUnavailable, match=r"HTTP 502.*bad gateway"):
            asyncio.run(model.reply(asked))
    (headers,) = wire.headers
    assert (headers["authorization"], headers["connection"]) == (f"Bearer {KEY}", "close")


@pytest.mark.parametrize("body", [b"<html>log in first</html>", b""])
def test_a_page_instead_of_a_stream_is_not_a_lost_connection(body: bytes) -> None:
    with serving(lambda text: (200, {"Content-Type": "text/html"}, body)) as wire:
        model = opened(openai.PROVIDER, wire.url)
        asked = ModelRequest(messages=[Message(MessageRole.USER, "hello")], max_output_tokens=64)
        with pytest.raises(
            ModelUnavailable, match=r"unexpected response \(got text/html instead of"
        ) as caught:
            asyncio.run(model.reply(asked))
    assert caught.value.charged


ASKS_FOR_JSON = ModelRequest(
    messages=(Message(MessageRole.USER, "hello"),),
    max_output_tokens=64,
    schema={"type": "object", "properties": {"verdict": {"type": "string"}}},
)


@pytest.mark.parametrize(
    "said",
    [
        "This response_format type is unavailable now",
        "'response_format.type' must be 'json_schema' or 'text'",
        "failed to parse grammar",
    ],
)
def test_a_server_that_refuses_schemas_gets_them_in_words(said: str) -> None:
    """Once refused, the parameter is not sent again."""
    script = {
        "rules": [
            {"reply": {"fault": {"status": 400, "message": said}}, "times": 1},
            {"reply": {"text": '{"verdict": "good"}'}},
        ]
    }
    with ScriptedServer(read_script(json.dumps(script), "s"), key=KEY) as server:
        model = opened(openai.PROVIDER, server.base_url)
        for _ in range(2):
            assert asyncio.run(model.reply(ASKS_FOR_JSON)).message.text == '{"verdict": "good"}'
        first, *later = server.bodies()
    assert "response_format" in first
    assert len(later) == 2
    for body in later:
        assert "response_format" not in body
        assert '"verdict"' in body["messages"][0]["content"]


def test_another_refusal_of_a_request_with_a_schema_is_raised() -> None:
    script = {"rules": [{"reply": {"fault": {"status": 400, "message": "no such tool"}}}]}
    with ScriptedServer(read_script(json.dumps(script), "s"), key=KEY) as server:
        with pytest.raises(ModelRefused, match="no such tool"):
            asyncio.run(opened(openai.PROVIDER, server.base_url).reply(ASKS_FOR_JSON))
        assert len(server.bodies()) == 1


def test_a_server_that_always_refuses_schemas_is_asked_twice_at_most() -> None:
    script = {"rules": [{"reply": {"fault": {"status": 400, "message": "response_format: no"}}}]}
    with ScriptedServer(read_script(json.dumps(script), "s"), key=KEY) as server:
        with pytest.raises(ModelRefused):
            asyncio.run(opened(openai.PROVIDER, server.base_url).reply(ASKS_FOR_JSON))
        assert len(server.bodies()) == 2


@dataclass
class RefusingChat:
    """A chat model that refuses each schema once all expected calls have arrived."""

    expected: int
    asked: list[ChatInput] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def pieces(self, talk: ChatInput) -> AsyncGenerator[ReplyChunk, None]:
        self.asked.append(talk)
        if len(self.asked) == self.expected:
            self.arrived.set()
        await self.arrived.wait()
        if talk.options["schema"] is not None:
            raise ModelRefused("acme/m", "response_format is unavailable")
        yield ReplyChunk("{}", "stop")


def refusing_model(chat: RefusingChat) -> LangChainModel:
    speaker: Any = chat
    return LangChainModel(speaker, ModelFacts("acme/m", 1000, 100), lambda asked: {"schema": asked.schema})


def test_concurrent_calls_that_are_refused_for_their_schema_are_all_made_again() -> None:
    chat = RefusingChat(expected=2)

    async def both() -> list[ModelReply]:
        model = refusing_model(chat)
        return await asyncio.gather(model.reply(ASKS_FOR_JSON), model.reply(ASKS_FOR_JSON))

    assert [reply.message.text for reply in asyncio.run(both())] == ["{}", "{}"]
    assert [talk.options["schema"] is None for talk in chat.asked] == [False, False, True, True]


def test_a_refused_schema_does_not_turn_off_other_schemas() -> None:
    chat = RefusingChat(expected=1)
    other = replace(ASKS_FOR_JSON, schema={"type": "object"})

    async def both() -> None:
        model = refusing_model(chat)
        await model.reply(ASKS_FOR_JSON)
        await model.reply(other)

    asyncio.run(both())
    sent = [talk.options["schema"] for talk in chat.asked]
    assert sent == [ASKS_FOR_JSON.schema, None, other.schema, None]


def test_after_two_refused_schemas_no_other_is_sent() -> None:
    chat = RefusingChat(expected=1)

    async def three() -> None:
        model = refusing_model(chat)
        for number in range(3):
            await model.reply(replace(ASKS_FOR_JSON, schema={"type": "object", "title": str(number)}))

    asyncio.run(three())
    assert [talk.options["schema"] is None for talk in chat.asked] == [False, True, False, True, True]
