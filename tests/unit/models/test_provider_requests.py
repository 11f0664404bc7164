"""Requests to each provider against the provider's own schema, and reasoning that is sent back unchanged.

No package on PyPI or npm holds the current OpenAPI documents of these providers. The types in their Python
libraries, which two of them generate from those documents, are the schema here: a request may contain no
field that the types do not know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest

from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.attachment import Attachment
from cleveragents.models.model.conversation import Message, MessageRole, Thought, ToolRequest
from cleveragents.models.ports import Model, ModelFacts, ModelReply, ModelRequest
from cleveragents.models.provider import ModelSpec
from cleveragents.models.providers import anthropic, google, openai
from tests import model_wires
from tests.attached_files import PDF, PNG
from tests.model_wires import EVENTS, Answer, Wire, serving

# Found without importing: imports take seconds, and every collection would pay for them.
if any(find_spec(f"langchain_{name}") is None for name in ("openai", "anthropic", "google_genai")):
    pytest.skip("a provider's library is not installed", allow_module_level=True)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "relative"},
        "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "mode": {"enum": ["text", "binary"], "type": "string"},
    },
    "required": ["path"],
}
TOOLS = [
    ToolSpec("mail.send", "Sends.", Capability.READ, SCHEMA, {}),
    ToolSpec("mcp__tracker__list", "", Capability.READ, {"type": "object", "properties": {}}, {}),
]
CONVERSATION = (
    Message(MessageRole.SYSTEM, "Be brief."),
    Message(MessageRole.USER, "Please think, then send it."),
    Message(
        MessageRole.ASSISTANT,
        "I send.",
        (ToolRequest("0", "mail.send", {"path": "ä"}), ToolRequest("0", "no such tool", {}, "not JSON")),
    ),
    Message(MessageRole.TOOL, "sent", request_id="0"),
    Message(MessageRole.TOOL, "", request_id="0"),
    Message(MessageRole.ASSISTANT, "Sent."),
    Message(MessageRole.USER, "Please think, then send it again."),
)

PLAIN = Message(MessageRole.USER, "plain text, please")


def _openai_answer(said: str) -> Answer:
    call = {"index": 0, "id": "x", "function": {"name": "mail_send", "arguments": '{"path": "a"}'}}
    deltas: list[dict[str, Any]] = [
        {"reasoning_content": "I should "},
        {"reasoning_content": "greet."},
        {"content": "Hello "},
        {"content": "there"},
        {"tool_calls": [call]},
    ]
    chunks = [{"choices": [{"delta": delta}]} for delta in deltas if "think" in said or "content" in delta]
    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    lines = [json.dumps(chunk) for chunk in (*chunks, end)]
    return 200, EVENTS, "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()


PROVIDERS = {
    "openai": (openai.PROVIDER, _openai_answer),
    "anthropic": (anthropic.PROVIDER, model_wires.anthropic),
    "google": (google.PROVIDER, model_wires.google),
}


@cache
def _closed_schema(provider: str) -> Any:
    """Return a validator for the body of a request that rejects unknown fields."""
    from jsonschema import Draft202012Validator
    from pydantic import TypeAdapter

    if provider == "openai":
        from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming as Params
    else:
        from anthropic.types.message_create_params import MessageCreateParamsStreaming as Params
    return Draft202012Validator(_closed(TypeAdapter(Params).json_schema()))


def _closed(schema: Any) -> Any:
    if isinstance(schema, dict):
        closed = {name: _closed(part) for name, part in schema.items()}
        if closed.get("type") == "object" and "properties" in closed:
            closed.setdefault("additionalProperties", False)
        return closed
    return [_closed(part) for part in schema] if isinstance(schema, list) else schema


def _google_problems(body: Mapping[str, Any]) -> list[str]:
    from google.genai import types
    from pydantic import TypeAdapter, ValidationError

    kinds: dict[str, Any] = {
        "contents": list[types.Content],
        "systemInstruction": types.Content,
        "tools": list[types.Tool],
        "toolConfig": types.ToolConfig,
        "safetySettings": list[types.SafetySetting],
        "generationConfig": types.GenerationConfig,
    }
    found = [f"unknown field {name}" for name in body.keys() - kinds.keys()]
    for name in body.keys() & kinds.keys():
        try:
            TypeAdapter(kinds[name]).validate_json(json.dumps(body[name]))
        except ValidationError as error:
            found.append(str(error))
    return found


def problems(provider: str, body: Mapping[str, Any]) -> list[str]:
    """Return where the body of a request breaks the provider's schema."""
    if provider == "google":
        return _google_problems(body)
    return [f"{list(error.path)}: {error.message}" for error in _closed_schema(provider).iter_errors(body)]


class Stand:
    """A model of one provider, and a server that answers it."""

    def __init__(self, provider: str, wire: Wire) -> None:
        self.provider = provider
        self.wire = wire

    def model(self, name: str = "m") -> Model:
        facts = ModelFacts(f"{self.provider}/{name}", 100_000, 100, image_tokens=900, pdf_tokens=900)
        spec = ModelSpec(facts=facts, model=name, timeout_seconds=60, key="k", base_url=self.wire.url)
        return PROVIDERS[self.provider][0].open(spec)

    def ask(self, *messages: Message, model: Model | None = None, **more: Any) -> ModelReply:
        asked = {"messages": messages, "max_output_tokens": 64, "tools": TOOLS, **more}
        return asyncio.run((model or self.model()).reply(ModelRequest(**asked)))

    def sent(self) -> dict[str, Any]:
        """Return the body of the last request, which fits the provider's schema."""
        body: dict[str, Any] = self.wire.bodies[-1]
        assert problems(self.provider, body) == []
        return body


@pytest.fixture(params=PROVIDERS)
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    with serving(PROVIDERS[request.param][1]) as wire:
        yield Stand(request.param, wire)


# ── the schema of each provider ───────────────────────────────────────────────────────────────────

REQUESTS: dict[str, Callable[[Stand], ModelReply]] = {
    "a question": lambda stand: stand.ask(PLAIN, tools=()),
    "a temperature": lambda stand: stand.ask(CONVERSATION[1], temperature=0.0),
    "a schema": lambda stand: stand.ask(CONVERSATION[0], PLAIN, tools=(), schema=SCHEMA),
    "a schema and tools": lambda stand: stand.ask(*CONVERSATION[:2], schema=SCHEMA),
    "a conversation": lambda stand: stand.ask(*CONVERSATION),
    "a tool result": lambda stand: stand.ask(*CONVERSATION[:5]),
}


@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=[name.replace(" ", "-") for name in REQUESTS])
def test_a_request_fits_the_schema_of_the_provider(
    stand: Stand, request_of: Callable[[Stand], ModelReply]
) -> None:
    reply = request_of(stand)
    assert reply.message.text == "Hello there"
    assert stand.sent()


def test_a_request_that_breaks_the_schema_is_noticed(stand: Stand) -> None:
    stand.ask(*CONVERSATION)
    body = stand.sent()
    assert problems(stand.provider, {**body, "invented": 1})
    name = "contents" if stand.provider == "google" else "messages"
    last = body[name][-1]
    assert problems(stand.provider, {**body, name: [*body[name][:-1], {**last, "role": 5}]})
    assert problems(stand.provider, {**body, name: [*body[name][:-1], {**last, "invented": 1}]})


def test_a_temperature_is_sent_to_models_that_accept_one() -> None:
    request = ModelRequest(messages=[PLAIN], max_output_tokens=8, temperature=0.25)
    claude = {
        "claude-3-5-haiku-latest": True,
        "claude-sonnet-4-5": True,
        "claude-opus-4-6-20260205": True,
        "claude-opus-4-7": False,
        "claude-sonnet-5-5": False,
    }
    gpt = {"gpt-4.1": True, "gpt-5-chat-latest": True, "gpt-5": False, "gpt-5-mini": False, "o3": False}
    assert {name: "temperature" in anthropic.options(request, name) for name in claude} == claude
    assert {name: "temperature" in openai.options(request, name, elsewhere=False) for name in gpt} == gpt
    # Behind a base URL, any name may be any model.
    assert "temperature" in openai.options(request, "gpt-5", elsewhere=True)


# ── attachments ───────────────────────────────────────────────────────────────────────────────────

FILES = (Attachment.of("shot.png", PNG), Attachment.of("../paper.pdf", PDF))
IMAGE, DOCUMENT = (one.base64 for one in FILES)
FOR_URLS = str.maketrans("+/", "-_")  # the alphabet of Google's library
ATTACHED: dict[str, Any] = {
    "openai": [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
        {
            "type": "file",
            "file": {
                "filename": "attachment-2.pdf",
                "file_data": f"data:application/pdf;base64,{DOCUMENT}",
            },
        },
    ],
    "anthropic": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": DOCUMENT}},
    ],
    "google": [
        {"inlineData": {"mime_type": "image/png", "data": IMAGE}},
        {"inlineData": {"mime_type": "application/pdf", "data": DOCUMENT.translate(FOR_URLS)}},
    ],
}


def test_attachments_go_with_the_first_message_of_the_user(stand: Stand) -> None:
    stand.ask(*CONVERSATION, attachments=FILES)
    body = stand.sent()
    messages = body["contents" if stand.provider == "google" else "messages"]
    asked = [message for message in messages if message["role"] == "user"]
    parts = asked[0]["parts" if stand.provider == "google" else "content"]
    *files, text = [{name: part[name] for name in part if name != "cache_control"} for part in parts]
    assert files == ATTACHED[stand.provider]
    assert text["text"] == "Please think, then send it."
    sent = json.dumps(body)
    assert sent.count(IMAGE) == 1, "each file is sent once"
    assert "paper" not in sent


# ── reasoning ─────────────────────────────────────────────────────────────────────────────────────

REASONING: dict[str, Any] = {
    "openai": {"reasoning_content": "I should greet."},
    "anthropic": [
        {"type": "thinking", "thinking": "I should greet.", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"},
    ],
    "google": ["dGV4dA==", "c2lnbmVk"],
}


def reasoning_in(provider: str, body: Mapping[str, Any]) -> Any:
    """Return the reasoning in the second message of a request."""
    if provider == "google":
        parts = body["contents"][1]["parts"]
        return [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]
    message = body["messages"][1]
    if provider == "openai":
        return {name: message[name] for name in message if "reasoning" in name}
    return [block for block in message["content"] if "thinking" in block["type"]]


def answered(reply: ModelReply) -> tuple[Message, ...]:
    """Return the conversation after a tool call, as a checkpoint restores it."""
    (call,) = reply.message.requests
    kept = Message.from_json(json.loads(json.dumps(_thawed(reply.message.to_json()))))
    assert kept == reply.message
    return CONVERSATION[1], kept, Message(MessageRole.TOOL, "sent", request_id=call.id)


def _thawed(value: Any) -> Any:
    from cleveragents.core.json_value import thaw

    return thaw(value)


def test_reasoning_goes_back_unchanged_to_the_model_that_wrote_it(stand: Stand) -> None:
    reply = stand.ask(CONVERSATION[1])
    assert reply.message.text == "Hello there"
    assert "greet" not in reply.message.text
    stand.ask(*answered(reply))
    # OpenAI's schema has no reasoning: its own server sends none, and gets none back.
    body = stand.wire.bodies[-1] if stand.provider == "openai" else stand.sent()
    assert reasoning_in(stand.provider, body) == REASONING[stand.provider]
    if stand.provider == "google":
        signed = stand.sent()["contents"][1]["parts"][-1]
        assert (signed["functionCall"]["name"], signed["thoughtSignature"]) == ("mail_send", "c2lnbmVk")


def test_reasoning_does_not_go_to_another_model(stand: Stand) -> None:
    reply = stand.ask(CONVERSATION[1])
    stand.ask(*answered(reply), model=stand.model("other"))
    assert not reasoning_in(stand.provider, stand.sent())


def test_reasoning_keeps_its_place_between_two_texts() -> None:
    with serving(model_wires.anthropic) as wire:
        stand = Stand("anthropic", wire)
        thought = {"type": "thinking", "thinking": "Hm.", "signature": "eA=="}
        said = Message(MessageRole.ASSISTANT, "one two", thoughts=(Thought("anthropic/m", 4, thought),))
        stand.ask(CONVERSATION[1], said, Message(MessageRole.USER, "go on"))
        assert stand.sent()["messages"][1]["content"] == [
            {"type": "text", "text": "one "},
            thought,
            {"type": "text", "text": "two"},
        ]


def test_a_signature_without_its_call_is_dropped() -> None:
    with serving(model_wires.google) as wire:
        stand = Stand("google", wire)
        signature = {"type": "function_call_signature", "index": 0, "signature": "eA=="}
        said = Message(MessageRole.ASSISTANT, "one", thoughts=(Thought("google/m", 3, signature),))
        stand.ask(CONVERSATION[1], said, Message(MessageRole.USER, "go on"))
        assert stand.sent()["contents"][1]["parts"] == [{"text": "one"}]


def test_reasoning_counts_as_input() -> None:
    with serving(model_wires.anthropic) as wire:
        stand = Stand("anthropic", wire)
        model = stand.model()
        plain = Message(MessageRole.ASSISTANT, "one")
        thinking = Message(
            MessageRole.ASSISTANT, "one", thoughts=(Thought("anthropic/m", 0, {"thinking": "word " * 100}),)
        )
        counts = [
            model.count_tokens(ModelRequest(messages=[said], max_output_tokens=8))
            for said in (plain, thinking)
        ]
        assert counts[1] - counts[0] >= 100


# ── prompt caching ────────────────────────────────────────────────────────────────────────────────


def test_the_prefixes_of_a_conversation_are_marked_for_anthropic() -> None:
    with serving(model_wires.anthropic) as wire:
        stand = Stand("anthropic", wire)
        stand.ask(*CONVERSATION)
        body = stand.sent()
        assert [("cache_control" in tool) for tool in body["tools"]] == [False, True]
        assert "cache_control" in body["system"][-1]
        marked = [
            number
            for number, message in enumerate(body["messages"])
            if isinstance(message["content"], list)
            and any("cache_control" in block for block in message["content"])
        ]
        assert marked == [2, 4]
        assert json.dumps(body).count("cache_control") == 4


def test_the_same_conversation_is_sent_as_the_same_bytes(stand: Stand) -> None:
    reply = stand.ask(*CONVERSATION)
    stand.ask(*CONVERSATION)
    before, after = stand.wire.bodies[-2:]
    assert json.dumps(before) == json.dumps(after)
    assert reply.message.requests
