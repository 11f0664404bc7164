"""The llm node: its tool loop, invalid calls and answers, and conversations that no longer fit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from cleveragents.actors.graph.llm_node import structured
from cleveragents.actors.model.actor import ActorLimits, LlmNode, StateKey
from cleveragents.actors.ports import ToolAnswer
from cleveragents.core.errors import ActorStopped, ContextTooLong, ModelUnavailable, NeedsHuman, PriceUnknown
from cleveragents.models.model.budget import Price
from cleveragents.models.model.conversation import MessageRole, ToolRequest, Usage
from cleveragents.models.ports import ModelFacts, ModelReply, ModelRequest
from cleveragents.testing.actor_host import RecordedModelCall, ScriptedHost, asks_for, says
from tests.actor_bench import Bench, actor, open_bench, thinker

SMALL = ModelFacts("small", 1000, 100)
SHAPE = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("llm")) as opened:
        yield opened


def worker(**facts: Any) -> LlmNode:
    return thinker(**{"tools": ("look",), "output": "text", **facts})


def one(*nodes: LlmNode, **facts: Any) -> Any:
    return actor(*nodes, **{"state": (StateKey("text"), StateKey("n", "integer")), **facts})


def roles(thought: RecordedModelCall) -> str:
    return "".join(message.role.value[0] for message in thought.request.messages)


def whole(thought: RecordedModelCall) -> bool:
    """Return whether every tool result follows its request, and every request has a result."""
    open_requests: list[str] = []
    for message in thought.request.messages:
        if message.role is MessageRole.TOOL:
            if not open_requests or message.request_id != open_requests.pop(0):
                return False
        elif open_requests:
            return False
        open_requests += [request.id for request in message.requests]
    return not open_requests


# ── tools ──


def test_calls_are_made_in_order_and_their_answers_go_back(bench: Bench) -> None:
    replies = [
        asks_for(("look", {"at": "a"}), ("look", {"at": "b"})),
        asks_for(("look", {"at": "c"})),
        "done",
    ]
    host = ScriptedHost(replies, {"look": lambda at: f"saw {at}"})
    outcome = bench.run(one(worker()), host, thread_id="p/execute/3")
    assert outcome.values["text"] == "done"
    assert [(arguments["at"], step) for _, arguments, step in host.uses] == [
        ("a", "3.think.1"),
        ("b", "3.think.2"),
        ("c", "3.think.3"),
    ]
    assert [
        message.text for message in host.thoughts[2].request.messages if message.role is MessageRole.TOOL
    ] == [
        "saw a",
        "saw b",
        "saw c",
    ]
    assert len({thought.key for thought in host.thoughts}) == 3


def test_duplicate_ids_of_models_are_kept_apart(bench: Bench) -> None:
    same = [ToolRequest("0", "look", {"at": name}) for name in "ab"]
    host = ScriptedHost([asks_for(*same), asks_for(same[0]), "done"], {"look": lambda at: at})
    bench.run(one(worker()), host)
    assert [arguments["at"] for _, arguments, _ in host.uses] == ["a", "b", "a"]


def test_finished_work_is_not_repeated_after_a_failure(bench: Bench) -> None:
    down = ModelUnavailable("scripted", "down")
    replies = [asks_for(("look", {"at": "a"})), asks_for(("look", {"at": "b"})), down, "done"]
    host = ScriptedHost(replies, {"look": lambda at: at})
    request = bench.request(one(worker()), host)
    with pytest.raises(ModelUnavailable) as raised:
        bench.runner.run(request)
    assert raised.value is down, "an error of ours comes out as itself"
    fresh = ScriptedHost(["done"], {"look": lambda at: at})
    outcome = bench.again().run(structs.replace(request, host=fresh))
    assert outcome.values["text"] == "done"
    assert fresh.uses == []
    assert len(fresh.thoughts) == 1
    assert roles(fresh.thoughts[0]) == "uatat"


def test_a_call_that_waits_for_approval_is_made_once_approved(bench: Bench) -> None:
    leave = []

    def write() -> str:
        if not leave:
            raise NeedsHuman("p", "write")
        return "written"

    host = ScriptedHost(
        [asks_for(("look", {}), ("write", {})), "done"], {"look": lambda: "seen", "write": write}
    )
    request = bench.request(one(worker(tools=("look", "write"))), host)
    with pytest.raises(NeedsHuman):
        bench.runner.run(request)
    leave.append(True)
    assert bench.again().run(request).values["text"] == "done"
    assert [tool for tool, _, _ in host.uses] == ["look", "write", "write"]
    assert host.uses[1][2] == host.uses[2][2], "the name of the call stays"
    assert len(host.thoughts) == 2


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (ToolRequest("1", "look", {}, "the arguments are no JSON object"), "no JSON object"),
        (ToolRequest("1", "lok", {}), "there is no tool 'lok'; available: look"),
    ],
)
def test_a_malformed_call_is_returned_with_its_problem(bench: Bench, wrong: ToolRequest, told: str) -> None:
    host = ScriptedHost([asks_for(wrong), "sorry"], {"look": lambda: "x"})
    assert bench.run(one(worker()), host).values["text"] == "sorry"
    assert host.uses == []
    assert told in host.thoughts[1].last
    [(tool, reason, step)] = host.refused
    assert (tool, told in reason, step.endswith(".think.1")) == (wrong.tool, True, True)


def test_a_tool_that_an_actor_was_not_given_is_not_called(bench: Bench) -> None:
    host = ScriptedHost([asks_for(("look", {}), ("look", {}), text="Let me look."), "sorry"], {"look": str})
    assert bench.run(one(worker(tools=())), host).values["text"] == "sorry"
    assert host.uses == []
    assert [step.rpartition(".think.")[2] for _, _, step in host.refused] == ["1", "2"]
    _, asked, told = host.thoughts[1].request.messages
    assert (asked.text, asked.requests) == ("Let me look.", ()), "a provider wants every request answered"
    assert "available: none" in told.text


def test_a_model_that_keeps_asking_for_tools_where_there_are_none_is_stopped(bench: Bench) -> None:
    host = ScriptedHost(lambda _: asks_for(("look", {})))
    with pytest.raises(ActorStopped, match="no valid answer in 4 attempts: there is no tool 'look'"):
        bench.run(one(worker(tools=())), host)
    assert len(host.thoughts) == 4


def test_the_same_failing_call_thrice_stops_with_the_reason(bench: Bench) -> None:
    host = ScriptedHost(
        lambda _: asks_for(("look", {"at": "x"})),
        {"look": lambda at: ToolAnswer("no such file", failed=True)},
    )
    with pytest.raises(ActorStopped, match="look failed 3 times in the same way: no such file"):
        bench.run(one(worker()), host)
    assert len(host.uses) == 3


def test_a_run_that_was_stopped_for_its_failures_asks_its_model_when_it_goes_on(bench: Bench) -> None:
    again = asks_for(("look", {"at": "x"}))
    other = asks_for(("look", {"at": "x"}), ("look", {"at": "good"}))
    host = ScriptedHost(
        [again, again, other, "I see"],
        {"look": lambda at: ToolAnswer("no such file", failed=at == "x")},
    )
    request = bench.request(one(worker()), host)
    with pytest.raises(ActorStopped, match="look failed 3 times"):
        bench.runner.run(request)
    assert [arguments["at"] for _, arguments, _ in host.uses] == ["x", "x", "x"], "nothing more is called"
    assert bench.again().run(request).values["text"] == "I see"
    assert [arguments["at"] for _, arguments, _ in host.uses] == ["x", "x", "x", "good"]
    assert whole(host.thoughts[-1])


def test_two_failed_edits_of_a_file_lead_to_writing_it(bench: Bench) -> None:
    paths = ["a.py", "b.py", "a.py", "a.py", "c.py"]
    host = ScriptedHost(
        [*(asks_for(("edit", {"path": path, "old": str(n)})) for n, path in enumerate(paths)), "done"],
        {
            "edit": lambda path, old: ToolAnswer(f"`old` is not {old}", failed=old != "3"),
            "write": lambda path, content: "written",
        },
    )
    bench.run(one(worker(tools=("edit", "write"))), host)
    told = [
        message.text for message in host.thoughts[-1].request.messages if message.role is MessageRole.TOOL
    ]
    advice = "\n2 edits of a.py failed. Read the file, then write all of it with `write`."
    assert told == [f"`old` is not {number}{advice * (number == 2)}" for number in range(5)]


def test_denied_edits_lead_to_no_advice(bench: Bench) -> None:
    host = ScriptedHost(
        [*(asks_for(("edit", {"path": "a.py", "old": str(n)})) for n in range(2)), "done"],
        {
            "edit": lambda path, old: ToolAnswer("denied by a person", failed=True),
            "write": lambda path, content: "written",
        },
    )
    bench.run(one(worker(tools=("edit", "write"))), host)
    assert "write all of it" not in host.thoughts[-1].request.messages[-1].text


def test_malformed_calls_are_failing_calls_too(bench: Bench) -> None:
    host = ScriptedHost(lambda _: asks_for(("nothing", {})), {"look": lambda: "x"})
    with pytest.raises(ActorStopped, match="nothing failed 3 times"):
        bench.run(one(worker()), host)
    assert len(host.thoughts) == 3


def failing_look(at: str) -> ToolAnswer:
    return ToolAnswer(f"no {at}", failed=at != "good")


def test_a_model_that_reads_and_fails_in_turn_is_stopped_too(bench: Bench) -> None:
    """Reading the file again is the advice after a failed edit, but no progress by itself."""
    calls = ["x", "good", "y", "x", "good", "y", "x", "never"]
    host = ScriptedHost([asks_for(("look", {"at": at})) for at in calls], {"look": failing_look})
    with pytest.raises(ActorStopped, match="look failed 3 times in the same way: no x"):
        bench.run(one(worker()), host)
    assert [arguments["at"] for _, arguments, _ in host.uses] == calls[:-1]


def test_different_distant_or_interrupted_failures_do_not_stop_the_run(bench: Bench) -> None:
    far = [f"y{number}" for number in range(11)]
    calls = [
        *[("look", at) for at in ("x", "x", *far, "x", "x")],
        ("change", "good"),
        ("look", "x"),
        ("look", "x"),
    ]
    host = ScriptedHost(
        [*(asks_for((tool, {"at": at})) for tool, at in calls), "done"],
        {"look": failing_look, "change": failing_look},
        writing=["change"],
    )
    assert bench.run(one(worker(tools=("look", "change"))), host).values["text"] == "done"


def test_steps_count_model_and_tool_calls(bench: Bench) -> None:
    host = ScriptedHost(lambda thought: asks_for(("look", {"n": len(thought.key)})), {"look": lambda n: "x"})
    with pytest.raises(ActorStopped, match="7 model and tool calls"):
        bench.run(one(worker(), limits=ActorLimits(steps=7)), host)
    assert len(host.thoughts) + len(host.uses) == 7


def test_money_is_counted_and_needs_a_price(bench: Bench) -> None:
    priced = ModelFacts("m", 100_000, 1_000, Price(10**6, 10**6))
    host = ScriptedHost(
        lambda _: structs.replace(asks_for(("look", {})), usage=Usage(1000, 1000)),
        {"look": lambda: "x"},
        facts=priced,
    )
    with pytest.raises(ActorStopped, match=r"limit of \$0.005"):
        bench.run(one(worker(), limits=ActorLimits(usd=0.005)), host)
    assert len(host.thoughts) == 2
    with pytest.raises(PriceUnknown):
        bench.run(one(worker(), limits=ActorLimits(usd=1.0)), ScriptedHost(["x"], {"look": str}))


DEAR = ModelFacts("dear", 100_000, 1_000, Price(10**8, 10**8))
CHEAP = ModelFacts("cheap", 100_000, 1_000, Price(10**6, 10**6))


def test_money_is_enough_for_the_model_that_stands_in(bench: Bench) -> None:
    host = ScriptedHost(["x"], facts=CHEAP, stand_in=DEAR)
    with pytest.raises(ActorStopped, match=r"limit of \$0.05"):
        bench.run(one(worker(tools=()), limits=ActorLimits(usd=0.05)), host)
    unpriced = ScriptedHost(["x"], facts=CHEAP, stand_in=ModelFacts("unpriced", 100_000, 1_000))
    with pytest.raises(PriceUnknown, match="unpriced"):
        bench.run(one(worker(tools=()), limits=ActorLimits(usd=0.05)), unpriced)


@pytest.mark.parametrize(("answering", "calls"), [("cheap", 4), ("dear", 2)])
def test_a_call_costs_the_price_of_the_model_that_answered(bench: Bench, answering: str, calls: int) -> None:
    host = ScriptedHost(
        lambda t: (
            "done"
            if len(host.thoughts) == 4
            else structs.replace(asks_for(("look", {})), usage=Usage(0, 1000), model=answering)
        ),
        {"look": lambda: "x"},
        facts=CHEAP,
        stand_in=DEAR,
    )
    with suppress(ActorStopped):
        bench.run(one(worker(), limits=ActorLimits(usd=0.25)), host)
    assert len(host.thoughts) == calls


def test_slow_host_calls_do_not_run_on_the_loop(bench: Bench) -> None:
    threads: dict[str | None, list[str]] = {}

    class Slow(ScriptedHost):
        def models(self, model: str | None) -> Sequence[ModelFacts]:
            threads.setdefault(model, []).append(threading.current_thread().name)
            return super().models(model)

        def models_nowait(self, model: str | None) -> Sequence[ModelFacts] | None:
            return None if model != "known/known" else super().models_nowait(model)

        def facts(self, model: str | None) -> ModelFacts:
            raise AssertionError("this may ask a keyring")

        def count_tokens(self, model: str | None, request: ModelRequest) -> int:
            assert model in {*threads, "known/known"}, "counting opens the model, which may import a library"
            return super().count_tokens(model, request)

        async def think(self, *call: Any, **facts: Any) -> ModelReply:
            threads.setdefault("loop", []).append(threading.current_thread().name)
            return await super().think(*call, **facts)

    nodes = (worker(tools=(), next=("other",)), thinker("other", model="b/b", next=("third",)))
    host = Slow(["x", "y", "z", "k"])
    last = (thinker("third", model="b/b", next=("fourth",)), thinker("fourth", model="known/known"))
    bench.run(one(*nodes, *last), host)
    (loop,) = set(threads.pop("loop"))
    assert {model: len(asked) for model, asked in threads.items()} == {None: 1, "b/b": 1}
    assert all(loop not in asked for asked in threads.values())


# ── answers ──


def test_an_empty_answer_is_asked_for_again(bench: Bench) -> None:
    host = ScriptedHost(["  ", "words"])
    assert bench.run(one(worker(tools=())), host).values["text"] == "words"
    assert "the answer is empty" in host.thoughts[1].last


def test_a_structured_answer_writes_its_parts(bench: Bench) -> None:
    state = (StateKey("whole", "object"), StateKey("n", "integer"))
    which = one(worker(tools=(), schema=SHAPE, output="whole"), state=state)
    outcome = bench.run(which, ScriptedHost(['Sure!\n```json\n{"n": 3, "m": 4}\n```']))
    assert outcome.values["whole"] == {"n": 3, "m": 4}
    assert outcome.values["n"] == 3
    assert "m" not in outcome.values


def test_an_invalid_answer_is_returned_three_times_and_then_stops(bench: Bench) -> None:
    host = ScriptedHost(['{"n": "3"}', "[1]", "{", '{"n": 3}'])
    assert bench.run(one(worker(tools=(), schema=SHAPE, output=None)), host).values["n"] == 3
    assert "n: '3' is not of type 'integer'" in host.thoughts[1].last
    assert "it has type list" in host.thoughts[2].last
    stubborn = ScriptedHost(lambda _: "no")
    with pytest.raises(ActorStopped, match="no valid answer in 4 attempts"):
        bench.run(one(worker(tools=(), schema=SHAPE)), stubborn)
    assert len(stubborn.thoughts) == 4


def test_a_property_of_the_wrong_type_is_rejected_even_if_the_schema_allows_it(bench: Bench) -> None:
    host = ScriptedHost(['{"n": "three", "text": null}', '{"n": 3, "text": null}'])
    outcome = bench.run(one(worker(tools=(), schema={"type": "object"}, output=None)), host)
    assert (outcome.values["n"], outcome.values["text"]) == (3, None)
    assert "n: must be of type integer" in host.thoughts[1].last


def test_a_truncated_answer_is_not_an_answer(bench: Bench) -> None:
    host = ScriptedHost([says("Let me think about", cut_off=True), "brief"])
    assert bench.run(one(worker(tools=())), host).values["text"] == "brief"
    assert "the answer was cut off; be brief" in host.thoughts[1].last


def test_a_truncated_answer_is_asked_to_be_shorter() -> None:
    assert "make it shorter" in structured('{"n": 1', SHAPE, cut_off=True).problem
    assert "make it shorter" not in structured('{"n": 1', SHAPE).problem
    assert "NaN" in structured('{"n": NaN}', SHAPE).problem
    assert structured("x" * 10, SHAPE).value is None
    assert structured("[" * 100_000, SHAPE).value is None


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (str(1 << 63), "more than 64 bits"),
        ("1e999", "inf is not a JSON number"),
        (r'"\ud800"', "an incomplete character"),
        (r'{"a": ["\u0000"]}', "a NUL"),
        ("[" * 64 + "]" * 64, "nested deeper"),
    ],
)
def test_an_unstorable_answer_is_rejected(written: str, found: str) -> None:
    assert found in structured(f'{{"n": 1, "more": {written}}}', SHAPE).problem


def test_a_node_that_is_visited_again_begins_a_new_conversation(bench: Bench) -> None:
    which = one(worker(next=("again",)), limits=ActorLimits(steps=4))
    which = replace(which, nodes=(*which.nodes, thinker("again", next=("think",))))
    host = ScriptedHost([asks_for(("look", {})), "first", "go on", "second"], {"look": lambda: "x"})
    with pytest.raises(ActorStopped):
        bench.run(replace(which, limits=ActorLimits(steps=5)), host)
    assert roles(host.thoughts[3]) == "u"
    assert len({thought.key for thought in host.thoughts}) == 4


# ── conversations that do not fit ──


def busy(calls: int, answer: str, summary: str = "SUMMARY") -> tuple[ScriptedHost, list[int]]:
    """A model that looks `times` times before it is done, and can summarise; and the sizes
    of its requests.
    """
    sizes: list[int] = []

    def script(thought: RecordedModelCall) -> str | ModelReply:
        if "summarise" in thought.request.messages[0].text:
            return summary
        sizes.append(host.count_tokens(None, thought.request) + thought.request.max_output_tokens)
        made = len([t for t in host.thoughts if "summary" not in t.key])
        return "done" if made > calls else asks_for(("look", {"n": made}))

    host = ScriptedHost(script, {"look": lambda n: f"{n}: {answer}"}, facts=SMALL)
    return host, sizes


def test_old_answers_are_cut_before_anything_is_summarised(bench: Bench) -> None:
    host, sizes = busy(3, "x" * 900)
    bench.run(one(worker(system="Be brief.")), host)
    assert max(sizes) <= SMALL.context_tokens
    assert not [thought for thought in host.thoughts if "summary" in thought.key]
    last = host.thoughts[-1].request.messages
    assert "more characters were left out" in last[3].text
    assert last[-1].text.endswith("x" * 900)
    assert all(whole(thought) for thought in host.thoughts)


def test_a_long_history_is_summarised_and_goes_on(bench: Bench) -> None:
    host, sizes = busy(30, "x" * 300)
    assert bench.run(one(worker(system="Be brief.")), host).values["text"] == "done"
    assert max(sizes) <= SMALL.context_tokens
    assert len(host.uses) == 30
    summaries = [thought for thought in host.thoughts if "summary" in thought.key]
    assert summaries
    last = host.thoughts[-1].request.messages
    assert [last[0].text, last[1].text] == ["Be brief.", "Do win."]
    assert "SUMMARY" in last[2].text
    assert "SUMMARY" in summaries[-1].last, "an earlier summary is summarised again"
    assert all(whole(thought) for thought in host.thoughts)


@pytest.mark.parametrize("summary", ["y" * 4000, " "])
def test_a_summary_that_does_not_fit_is_dropped(bench: Bench, summary: str) -> None:
    host, sizes = busy(12, "x" * 300, summary)
    assert bench.run(one(worker()), host).values["text"] == "done"
    assert max(sizes) <= SMALL.context_tokens
    assert "were left out to save space" in host.thoughts[-1].request.messages[1].text
    assert all(whole(thought) for thought in host.thoughts)


def test_a_conversation_too_long_to_summarise_is_shortened(bench: Bench) -> None:
    sizes: list[int] = []

    def script(thought: RecordedModelCall) -> str | ModelReply | Exception:
        if "summary" in thought.key:
            return ContextTooLong("small", 2000, 1000)
        sizes.append(host.count_tokens(None, thought.request))
        return "done" if len(sizes) > 12 else asks_for(("look", {"n": len(sizes)}))

    host = ScriptedHost(script, {"look": lambda n: f"{n}" * 300}, facts=SMALL)
    assert bench.run(one(worker()), host).values["text"] == "done"


def test_a_conversation_that_the_provider_finds_too_long_is_shortened(bench: Bench) -> None:
    """The list says 100,000 tokens; the server was started with fewer."""
    refused: list[int] = []

    def script(thought: RecordedModelCall) -> str | ModelReply | Exception:
        size = host.count_tokens(None, thought.request)
        if size > 700:
            refused.append(size)
            return ContextTooLong("scripted", size, 700)
        if "summary" in thought.key:
            return "SUMMARY"
        made = len(host.uses)
        return "done" if made >= 12 else asks_for(("look", {"n": made}))

    host = ScriptedHost(script, {"look": lambda n: f"{n}: {'x' * 600}"})
    assert bench.run(one(worker()), host).values["text"] == "done"
    assert len(host.uses) == 12
    assert len(refused) == 1, "the limit is remembered"
    assert all(whole(thought) for thought in host.thoughts)


@pytest.mark.parametrize("limit", [10**6, 900, 0])
def test_a_provider_that_always_refuses_as_too_long_is_asked_a_limited_number_of_times(
    bench: Bench, limit: int
) -> None:
    host = ScriptedHost(lambda _: ContextTooLong("scripted", 1000, limit))
    with pytest.raises(ContextTooLong):
        bench.run(one(worker(tools=())), host)
    rooms = [thought.request.max_output_tokens for thought in host.thoughts]
    assert len(rooms) == 4
    assert rooms == sorted(set(rooms), reverse=True), "each time less is asked of it"


def test_a_single_huge_answer_is_cut(bench: Bench) -> None:
    host, sizes = busy(1, "x" * 50_000)
    assert bench.run(one(worker()), host).values["text"] == "done"
    assert max(sizes) <= SMALL.context_tokens
    assert whole(host.thoughts[-1])


def test_a_huge_call_is_dropped_with_its_result(bench: Bench) -> None:
    replies = [asks_for(("look", {"text": "x" * 50_000})), "done"]
    host = ScriptedHost(replies, {"look": lambda text: "written"}, facts=SMALL)
    assert bench.run(one(worker()), host).values["text"] == "done"
    assert "too long to be kept: look(" in host.thoughts[-1].last
    assert whole(host.thoughts[-1])


def test_a_huge_answer_of_the_model_is_left_out(bench: Bench) -> None:
    host = ScriptedHost(["{" * 50_000, '{"n": 1}'], facts=SMALL)
    assert bench.run(one(worker(tools=(), schema=SHAPE)), host).values["n"] == 1
    assert "an answer" in host.thoughts[-1].last


def test_a_task_that_no_model_can_read_is_refused(bench: Bench) -> None:
    host = ScriptedHost(["x"], facts=SMALL)
    with pytest.raises(ContextTooLong):
        bench.run(one(worker(tools=())), host, inputs={"goal": "x" * 50_000})
    assert host.thoughts == []


def test_a_summary_is_not_asked_for_again_after_a_failure(bench: Bench) -> None:
    failing = []

    def script(thought: RecordedModelCall) -> str | ModelReply | Exception:
        if "summary" in thought.key:
            return "SUMMARY"
        if any("SUMMARY" in message.text for message in thought.request.messages) and not failing:
            failing.append(True)
            return ModelUnavailable("small", "down")
        made = len([t for t in host.thoughts if "summary" not in t.key])
        return "done" if failing else asks_for(("look", {"n": made}))

    host = ScriptedHost(script, {"look": lambda n: f"{n}: {'x' * 300}"}, facts=SMALL)
    request = bench.request(one(worker()), host)
    with pytest.raises(ModelUnavailable):
        bench.runner.run(request)
    assert bench.again().run(request).values["text"] == "done"
    assert len([thought for thought in host.thoughts if "summary" in thought.key]) == 1


@pytest.mark.parametrize(("context", "asked"), [(400, True), (200, False)])
def test_a_run_may_continue_with_a_smaller_context_window(bench: Bench, context: int, asked: bool) -> None:
    down = ModelUnavailable("big", "down")
    long, short = asks_for(("look", {"n": 3000})), asks_for(("look", {"n": 1}))
    host = ScriptedHost([long, short, short, down], {"look": lambda n: "x" * n})
    request = bench.request(one(worker()), host)
    with pytest.raises(ModelUnavailable):
        bench.runner.run(request)
    less = ScriptedHost(
        lambda thought: "SUMMARY" if "summary" in thought.key else "done",
        {"look": lambda n: "x" * n},
        facts=ModelFacts("less", context, 100),
    )
    assert bench.runner.run(structs.replace(request, host=less)).values["text"] == "done"
    assert ["summary" in thought.key for thought in less.thoughts] == ([True, False] if asked else [False])
    for thought in less.thoughts:
        size = less.count_tokens(None, thought.request) + thought.request.max_output_tokens
        assert size <= context
        assert whole(thought)


def test_an_answer_gets_no_more_room_than_the_model_has(bench: Bench) -> None:
    for wanted, given in ((None, 100), (50, 50), (900, 100)):
        host = ScriptedHost(["x"], facts=SMALL)
        bench.run(one(worker(tools=(), max_output_tokens=wanted)), host)
        assert host.thoughts[0].request.max_output_tokens == given
    greedy = ScriptedHost(["x"], facts=ModelFacts("greedy", 1000, 1000))
    bench.run(one(worker(tools=())), greedy)
    assert greedy.thoughts[0].request.max_output_tokens == 250


def test_a_model_request_follows_its_node(bench: Bench) -> None:
    node = worker(schema=SHAPE, temperature=0.3, model="other/model")
    host = ScriptedHost(['{"n": 1}'], {"look": lambda: "x"})
    bench.run(one(node, model="own/model"), host)
    (thought,) = host.thoughts
    assert (thought.model, thought.request.temperature) == ("other/model", 0.3)
    assert json.dumps(thought.request.schema) == json.dumps(SHAPE)
    assert [spec.name for spec in thought.request.tools] == ["look"]
