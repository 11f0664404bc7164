"""One contract for every model: a scripted one in this process, and its script behind OpenAI's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec

import pytest

from cleveragents.core.errors import ContextTooLong, ModelRefused, ModelUnavailable
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.conversation import Message, MessageRole, ToolRequest, Usage
from cleveragents.models.ports import Model, ModelFacts, ModelReply, ModelRequest
from cleveragents.models.provider import ModelSpec
from cleveragents.models.providers.openai import PROVIDER
from cleveragents.models.script_document import read_script
from cleveragents.models.scripted_model import ScriptedModel
from cleveragents.testing.scripted_server import ScriptedServer

# Found without importing: imports take seconds, and every collection would pay for them.
if find_spec("langchain_openai") is None:
    pytest.skip("langchain_openai is not installed", allow_module_level=True)

MUCH = "".join(f"{number} " for number in range(300))
"""Longer than any text whose repetition ends an answer."""
SCRIPT = read_script(
    r"""
facts: {context_tokens: 4096, output_tokens: 512}
rules:
  - when: {user: "^status (?P<n>\\d+)$", turn: 99}
    reply: {text: "never"}
  - when: {user: "^say hello$"}
    reply: {text: "Hello, wide world."}
  - when: {user: "greet (?P<name>\\w+)"}
    reply:
      text: "Hello ${name}, that is $5."
      calls: [{tool: mail.send, arguments: {to: "${name}", tags: ["to ${name}"]}}]
  - when: {user: "^two calls$"}
    reply:
      text: "I look."
      calls: [{tool: mail.send, arguments: {to: "é — 漢字"}}, {tool: read, arguments: {path: b}}]
  - when: {user: "^written (?P<what>.*)$"}
    turns:
      - calls: [{tool: read, raw: '{"path": '}, {tool: read, raw: '[1, 2]'}, {tool: read, raw: '{"n": NaN}'}]
  - when: {user: "^empty call$"}
    reply:
      calls:
        - {tool: read, raw: ""}
        - {tool: nowhere, raw: "null"}
        - {tool: read, raw: '{"a": "\ud800"}'}
        - {tool: read, raw: '{"n": 18446744073709551616}'}
  - when: {user: "^long call$"}
    reply: {cut_off: true, calls: [{tool: read, arguments: {path: a}}, {tool: read, raw: '{"path": "abc'}]}
  - when: {user: "^limit$"}
    reply: {text: "As far as it", cut_off: true}
  - when: {user: "^counted$"}
    reply: {text: "Yes.", usage: {input: 40, output: 7, cached: 30}}
  - when: {user: "^uncounted$"}
    reply: {text: "Yes.", usage: {unsaid: true}}
  - when: {user: "^read it$"}
    turns:
      - {calls: [{tool: read, arguments: {path: a}}, {tool: read, arguments: {path: b}}]}
      - {text: "second turn"}
  - when: {tool: read, answer: "no such file"}
    reply: {text: "It is not there."}
  - when: {tool: read}
    reply: {text: "It is there."}
  - when: {system: "only numbers", user: "^count$"}
    reply: {text: "1 2 3"}
  - when: {user: "^count$"}
    reply: {text: "one two three"}
  - when: {offered: "mail.send", user: "^may you mail$"}
    reply: {text: "yes"}
  - when: {user: "^may you mail$"}
    reply: {text: "no"}
  - when: {user: "^cut$"}
    reply: {text: "one two three four", fault: {cut_after: 2}}
  - when: {user: "^cut at once$"}
    reply: {text: "one", fault: {cut_after: 0}}
  - when: {user: "^nonsense$"}
    reply: {fault: {raw: ["<html>gateway</html>"]}}
  - when: {user: "^wrong type$"}
    reply: {fault: {raw: ['{"choices": 5}']}}
  - when: {user: "^never$"}
    reply: {fault: {hang: true}}
  - when: {user: "^slowly$"}
    reply: {text: "one two", delay_seconds: 0.01, piece_seconds: 0.01}
  - when: {user: "^busy$"}
    reply: {fault: {status: 429, retry_after_seconds: 7}}
  - when: {user: "^broke$"}
    reply: {fault: {status: 429, code: insufficient_quota, message: "You exceeded your quota"}}
  - when: {user: "^500$"}
    reply: {fault: {status: 500}}
  - when: {user: "^503$"}
    reply: {fault: {status: 503}}
  - when: {user: "^400$"}
    reply: {fault: {status: 400}}
  - when: {user: "^401$"}
    reply: {fault: {status: 401, message: "no such key: sk-abcdefghijklmnopqrstuvwx"}}
  - when: {user: "^402$"}
    reply: {fault: {status: 402}}
  - when: {user: "^403$"}
    reply: {fault: {status: 403}}
  - when: {user: "^404$"}
    reply: {fault: {status: 404}}
  - when: {user: "^too long$"}
    reply:
      fault:
        status: 400
        code: context_length_exceeded
        message: "This model's maximum context length is 4096 tokens, and you sent 5,000 tokens."
  - when: {user: "^twice busy$"}
    times: 2
    reply: {fault: {status: 429}}
  - when: {user: "^twice busy$"}
    reply: {text: "now"}
  - when: {user: "^say much$"}
    reply: {text: "MUCH", repeat: 400}
""".replace("MUCH", MUCH),
    "script.yaml",
)
TOOLS = [
    ToolSpec(name, "Does it.", Capability.READ, {"type": "object", "properties": {}}, {})
    for name in ("mail.send", "read")
]


@dataclass
class Asking:
    """A model and its listener."""

    model: Model
    pieces: list[str] = field(default_factory=list)

    def __call__(self, *said: str | Message, **more: object) -> ModelReply:
        return asyncio.run(self.asks(*said, **more))

    def asks(self, *said: str | Message, **more: object) -> asyncio.Future[ModelReply]:
        messages = [Message(MessageRole.USER, one) if isinstance(one, str) else one for one in said]
        request = ModelRequest(**{"messages": messages, "max_output_tokens": 512, **more})
        return self.model.reply(request, self.pieces.append)


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(SCRIPT) as started:
        yield started


@pytest.fixture(params=["in process", "over http"])
def ask(request: pytest.FixtureRequest, server: ScriptedServer) -> Asking:
    if request.param == "in process":
        return Asking(ScriptedModel("scripted/script.yaml", SCRIPT))
    facts = ModelFacts("openai/scripted", 4096, 512)
    opening = ModelSpec(facts=facts, model="scripted", timeout_seconds=60, base_url=server.base_url)
    return Asking(PROVIDER.open(opening))


def test_the_answer_comes_in_pieces_that_make_up_the_whole(ask: Asking) -> None:
    reply = ask("say hello")
    assert reply.message == Message(MessageRole.ASSISTANT, "Hello, wide world.")
    assert ask.pieces == ["Hello, ", "wide ", "world."]
    assert not reply.cut_off
    assert reply.model == ask.model.facts.name


def test_a_listener_is_optional(ask: Asking) -> None:
    request = ModelRequest(messages=[Message(MessageRole.USER, "say hello")], max_output_tokens=512)
    assert asyncio.run(ask.model.reply(request)).message.text == "Hello, wide world."


def test_matched_groups_are_filled_in(ask: Asking) -> None:
    reply = ask("please greet Ada", tools=TOOLS)
    assert reply.message.text == "Hello Ada, that is $5."
    (call,) = reply.message.requests
    assert call == ToolRequest(call.id, "mail.send", {"to": "Ada", "tags": ["to Ada"]})


def test_calls_come_with_their_own_names_and_arguments(ask: Asking) -> None:
    reply = ask("two calls", tools=TOOLS)
    first, second = reply.message.requests
    assert (first.tool, first.arguments, first.problem) == ("mail.send", {"to": "é — 漢字"}, None)
    assert (second.tool, second.arguments, second.problem) == ("read", {"path": "b"}, None)
    assert first.id != second.id
    assert ask.pieces == ["I ", "look.", "", ""]  # the start of a call is reported as well


def test_malformed_arguments_are_a_precise_problem(ask: Asking) -> None:
    cut, listed, number = ask("written badly", tools=TOOLS).message.requests
    assert (cut.tool, dict(cut.arguments)) == ("read", {})
    assert cut.problem is not None
    assert "not JSON: Expecting value at character 10" in cut.problem
    assert listed.problem == "the arguments are a list; pass one JSON object"
    assert number.problem == "the arguments are not JSON: NaN is not a JSON number"


def test_no_arguments_at_all_are_none_and_odd_ones_are_refused(ask: Asking) -> None:
    nothing, null, half, large = ask("empty call", tools=TOOLS).message.requests
    assert (dict(nothing.arguments), nothing.problem) == ({}, None)
    assert (null.tool, null.problem) == ("nowhere", "the arguments are null; pass one JSON object")
    assert half.problem is not None
    assert "an incomplete character" in half.problem
    assert (dict(large.arguments), large.tool) == ({}, "read")
    assert large.problem is not None
    assert "an integer of more than 64 bits" in large.problem


def test_a_call_cut_off_by_the_limit_says_so(ask: Asking) -> None:
    reply = ask("long call", tools=TOOLS)
    whole, cut = reply.message.requests
    assert reply.cut_off
    assert whole.problem is None
    assert cut.problem is not None
    assert "cut off after 13 characters" in cut.problem


def test_an_answer_that_reached_its_limit_is_cut_off(ask: Asking) -> None:
    assert ask("limit").cut_off


def test_cached_tokens_are_counted(ask: Asking) -> None:
    assert ask("counted").usage == Usage(40, 7, 30)


def test_a_provider_that_does_not_count_leaves_it_unknown(ask: Asking) -> None:
    assert ask("uncounted").usage is None


def test_an_estimate_is_at_least_the_actual_usage(ask: Asking) -> None:
    request = ModelRequest(messages=[Message(MessageRole.USER, "counted")], max_output_tokens=8)
    greeting = ModelRequest(messages=[Message(MessageRole.USER, "say hello")], max_output_tokens=8)
    estimate = ask.model.count_tokens(greeting)
    reply = ask("say hello")
    assert reply.usage is not None
    assert estimate >= reply.usage.input_tokens
    ask("counted")
    assert (
        isinstance(ask.model, ScriptedModel) or ask.model.count_tokens(request) >= 40
    )  # the estimator has learned


def test_a_conversation_goes_on_with_the_answers_of_tools(ask: Asking) -> None:
    """Both requests have the same id, as some servers assign it; each result still finds its request."""
    asked = Message(
        MessageRole.ASSISTANT,
        "",
        (ToolRequest("0", "mail.send", {}), ToolRequest("0", "read", {"path": "a"})),
    )
    first = Message(MessageRole.TOOL, "sent", request_id="0")
    question = Message(MessageRole.USER, "what now?")
    there = ask(question, asked, first, Message(MessageRole.TOOL, "content", request_id="0"), tools=TOOLS)
    missing = ask(
        question, asked, first, Message(MessageRole.TOOL, "no such file", request_id="0"), tools=TOOLS
    )
    assert there.message.text == "It is there."
    assert missing.message.text == "It is not there."


def test_turns_are_counted_since_the_user_spoke(ask: Asking) -> None:
    first = ask("read it", tools=TOOLS).message
    answers = [Message(MessageRole.TOOL, "x", request_id=request.id) for request in first.requests]
    assert ask("read it", first, *answers, tools=TOOLS).message.text == "second turn"
    again = ask("read it", first, *answers, "read it", tools=TOOLS).message
    assert [request.arguments["path"] for request in again.requests] == ["a", "b"]


def test_the_system_prompt_is_heard(ask: Asking) -> None:
    assert ask(Message(MessageRole.SYSTEM, "only numbers"), "count").message.text == "1 2 3"
    assert ask(Message(MessageRole.SYSTEM, "words"), "count").message.text == "one two three"


def test_a_model_knows_which_tools_it_is_offered(ask: Asking) -> None:
    offered = ask("may you mail", tools=TOOLS).message.text
    assert offered == (
        "yes" if isinstance(ask.model, ScriptedModel) else "no"
    )  # over HTTP, its name is mail_send
    assert ask("may you mail").message.text == "no"


def test_an_answer_of_a_given_shape_can_be_asked_for(ask: Asking) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert ask("say hello", schema=schema, temperature=0.5).message.text == "Hello, wide world."


@pytest.mark.parametrize("said", ["cut", "cut at once"])
def test_half_an_answer_is_an_error(ask: Asking, said: str) -> None:
    with pytest.raises(ModelUnavailable):
        ask(said)
    assert ask.pieces == (["one ", "two "] if said == "cut" else [])


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("said", ["nonsense", "wrong type"])
def test_a_malformed_response_is_an_error(ask: Asking, said: str) -> None:
    with pytest.raises(ModelUnavailable, match="unexpected response"):
        ask(said)


@pytest.mark.parametrize("said", ["500", "503"])
def test_a_broken_server_is_unavailable(ask: Asking, said: str) -> None:
    with pytest.raises(ModelUnavailable, match=f"HTTP {said}"):
        ask(said)


def test_too_many_requests_say_how_long_to_wait(ask: Asking) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        ask("busy")
    assert caught.value.retry_after_seconds == 7


@pytest.mark.parametrize("said", ["400", "401", "402", "403", "404", "broke", "what is this?"])
def test_a_rejected_request_is_refused(ask: Asking, said: str) -> None:
    with pytest.raises(ModelRefused) as caught:
        ask(said)
    assert "sk-abc" not in str(caught.value)


def test_a_too_long_conversation_reports_its_numbers(ask: Asking) -> None:
    with pytest.raises(ContextTooLong) as caught:
        ask("too long")
    assert (caught.value.needed, caught.value.limit) == (5000, 4096)


def test_a_call_that_is_never_answered_can_be_cancelled(ask: Asking) -> None:
    async def cancelled() -> bool:
        call = asyncio.ensure_future(ask.asks("never"))
        done, _ = await asyncio.wait({call}, timeout=0.05)
        assert not done
        call.cancel()
        await asyncio.wait({call}, timeout=30)
        return call.cancelled()

    assert asyncio.run(cancelled())


def test_a_rule_with_times_lets_later_rules_answer(ask: Asking, server: ScriptedServer) -> None:
    server.forget()
    for _ in range(2):
        with pytest.raises(ModelUnavailable):
            ask("twice busy")
    assert ask("twice busy").message.text == "now"


def test_answers_take_their_time(ask: Asking) -> None:
    assert ask("slowly").message.text == "one two"


def test_any_number_of_calls_run_at_once(ask: Asking) -> None:
    async def many() -> list[ModelReply]:
        return await asyncio.gather(*(ask.asks("say hello") for _ in range(32)))

    assert {reply.message.text for reply in asyncio.run(many())} == {"Hello, wide world."}


def test_an_answer_of_any_length_is_taken(ask: Asking) -> None:
    reply = ask("say much", max_output_tokens=100_000)
    assert reply.message.text == MUCH * 400
    assert "".join(ask.pieces) == reply.message.text


def test_an_error_of_the_listener_is_raised(ask: Asking) -> None:
    def fail(piece: str) -> None:
        raise ZeroDivisionError(piece)

    listener: Callable[[str], None] = fail
    request = ModelRequest(messages=[Message(MessageRole.USER, "say hello")], max_output_tokens=512)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(ask.model.reply(request, listener))
