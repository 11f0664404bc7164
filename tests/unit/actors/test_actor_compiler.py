"""Compilation of actors to LangGraph graphs: every kind of node, branches that wait for each other, nested
actors.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from cleveragents.actors.graph.compiler import compile_actor, joins_of
from cleveragents.actors.model.actor import (
    ActorLimits,
    HumanNode,
    Progress,
    ProgressKind,
    Route,
    RouterNode,
    StateKey,
    StateType,
    SubgraphNode,
    ToolNode,
)
from cleveragents.actors.ports import QuestionAnswer, ToolAnswer
from cleveragents.core.errors import (
    ActorStopped,
    DeadlineExceeded,
    InvalidActor,
    InvalidCondition,
    InvalidPayload,
    UnknownActor,
)
from cleveragents.models.model.budget import Price
from cleveragents.models.model.conversation import Usage
from cleveragents.models.ports import ModelFacts
from cleveragents.testing.actor_host import RecordedModelCall, ScriptedHost, says
from tests.actor_bench import Bench, KnownActors, actor, open_bench, thinker

TEXT = StateKey("text")
NOTES = StateKey("notes", "list", "append")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("actors")) as opened:
        yield opened


def by_node(**replies: str) -> Any:
    """Return a script with different answers for each node."""
    return lambda thought: replies[thought.node.rpartition(".")[2]]


# ── each kind of node ──


def test_an_llm_node_fills_its_prompt_and_writes_its_answer(bench: Bench) -> None:
    node = thinker(system="You are ${role}.", prompt="Do ${goal} with ${facts}.", output="text")
    state = (TEXT, StateKey("role", default="careful"), StateKey("facts", "list", default=("a", 1)))
    host = ScriptedHost(["done"])
    outcome = bench.run(actor(node, state=state), host)
    assert outcome.values["text"] == "done"
    assert outcome.question is None
    (thought,) = host.thoughts
    assert thought.request.messages[0].text == "You are careful."
    assert thought.last == 'Do win with [\n "a",\n 1\n].'


def test_values_that_are_not_text_are_written_as_json_in_a_prompt(bench: Bench) -> None:
    node = thinker(prompt="${flag} ${none} ${count} ${seen}")
    kinds: dict[str, StateType] = {"flag": "boolean", "none": "list", "count": "integer", "seen": "object"}
    state = tuple(StateKey(name, kind) for name, kind in kinds.items())
    host = ScriptedHost(["done"])
    bench.run(
        actor(node, state=state), host, inputs={"flag": True, "none": None, "count": 3, "seen": {"é": 1}}
    )
    assert host.thoughts[0].last == 'true  3 {\n "é": 1\n}'


def test_a_tool_node_calls_with_values_of_their_type(bench: Bench) -> None:
    node = ToolNode(
        name="count", tool="count", arguments={"limit": "${limit}", "of": "all ${goal}"}, output="found"
    )
    state = (StateKey("limit", "integer", default=3), StateKey("found", "object"))
    host = ScriptedHost(
        [], {"count": lambda limit, of: ToolAnswer("two", value={"n": 2, "of": of, "at": limit})}
    )
    outcome = bench.run(actor(node, state=state), host)
    assert outcome.values["found"] == {"n": 2, "of": "all win", "at": 3}


def test_a_tool_node_writes_text_where_text_is_wanted(bench: Bench) -> None:
    host = ScriptedHost([], {"look": lambda: ToolAnswer("seen", value={"n": 2})})
    outcome = bench.run(actor(ToolNode(name="look", tool="look", output="text"), state=(TEXT,)), host)
    assert outcome.values["text"] == "seen"


@pytest.mark.parametrize("value", [{"n": 2}, None, True])
def test_a_tool_node_whose_result_is_of_another_type_stops_the_actor(bench: Bench, value: Any) -> None:
    host = ScriptedHost([], {"look": lambda: ToolAnswer("seen", value=value)})
    count = StateKey("count", "integer", "sum")
    with pytest.raises(ActorStopped, match="the result of look does not fit 'count', which has type integer"):
        bench.run(actor(ToolNode(name="look", tool="look", output="count"), state=(count,)), host)


def test_a_tool_node_whose_call_fails_stops_the_actor(bench: Bench) -> None:
    host = ScriptedHost([], {"look": lambda: ToolAnswer("no such file", failed=True)})
    with pytest.raises(ActorStopped, match="no such file"):
        bench.run(actor(ToolNode(name="look", tool="look")), host)


@pytest.mark.parametrize(("verdict", "expected"), [("good", "kept"), ("bad", "fixed"), ("odd", "asked")])
def test_a_router_takes_the_first_route_that_holds(bench: Bench, verdict: str, expected: str) -> None:
    router = RouterNode(
        name="choose",
        routes=(Route("keep", "verdict == 'good'"), Route("fix", "verdict == 'bad'"), Route("ask")),
    )
    ends = [ToolNode(name=name, tool=name, output="text") for name in ("keep", "fix", "ask")]
    host = ScriptedHost([], {"keep": lambda: "kept", "fix": lambda: "fixed", "ask": lambda: "asked"})
    which = actor(router, *ends, state=(TEXT, StateKey("verdict")))
    assert bench.run(which, host, inputs={"verdict": verdict}).values["text"] == expected
    assert len(host.uses) == 1


def test_a_router_without_a_matching_route_stops(bench: Bench) -> None:
    nowhere = RouterNode(name="choose", routes=(Route("end", "goal == 'x'"),))
    with pytest.raises(ActorStopped, match="no route of node choose matches"):
        bench.run(actor(nowhere), ScriptedHost([]))
    undecided = RouterNode(name="choose", routes=(Route("end", "goal > 3"),))
    with pytest.raises(ActorStopped, match="cannot evaluate"):
        bench.run(actor(undecided), ScriptedHost([]))


def test_a_key_and_a_node_may_have_the_same_name(bench: Bench) -> None:
    which = actor(thinker("text", output="text"), state=(TEXT,))
    assert bench.run(which, ScriptedHost(["fine"])).values["text"] == "fine"


def test_an_unread_input_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidPayload, match="no key 'colour'"):
        bench.run(actor(thinker()), ScriptedHost(["x"]), inputs={"colour": "red"})


# ── what cannot be compiled ──


def test_mistakes_are_found_before_anything_runs() -> None:
    known = KnownActors()
    with pytest.raises(InvalidActor, match="no node 'nowhere'"):
        compile_actor(actor(thinker(next=("nowhere",))), known)
    with pytest.raises(InvalidCondition):
        compile_actor(actor(RouterNode(name="r", routes=(Route("end", "nope == 1"),))), known)
    with pytest.raises(UnknownActor):
        compile_actor(actor(SubgraphNode(name="s", actor="local/none")), known)


def test_an_actor_that_runs_itself_is_refused() -> None:
    one = actor(SubgraphNode(name="s", actor="local/two"), name="local/one")
    two = actor(SubgraphNode(name="s", actor="local/one"), name="local/two")
    with pytest.raises(InvalidActor, match="local/one → local/two → local/one"):
        compile_actor(one, KnownActors(one, two))


# ── branches ──


def test_branches_run_at_once_and_their_writes_are_joined(bench: Bench) -> None:
    nodes = (
        thinker("plan", next=("left", "right")),
        thinker("left", output="notes", next=("sum",)),
        thinker("right", output="notes", next=("sum",)),
        thinker("sum", prompt="${notes}", output="text"),
    )
    host = ScriptedHost(by_node(plan="p", left="l", right="r", sum="s"))
    outcome = bench.run(actor(*nodes, state=(TEXT, NOTES)), host)
    assert sorted(outcome.values["notes"]) == ["l", "r"]
    assert [thought.node for thought in host.thoughts].count("sum") == 1
    assert '"l"' in host.thoughts[-1].last
    assert '"r"' in host.thoughts[-1].last


def test_sums_and_merges_join_what_branches_write(bench: Bench) -> None:
    schema = {"type": "object", "properties": {"count": {"type": "integer"}, "seen": {"type": "object"}}}
    nodes = (
        thinker("plan", next=("left", "right")),
        thinker("left", schema=schema),
        thinker("right", schema=schema),
    )
    state = (StateKey("count", "integer", "sum", default=1), StateKey("seen", "object", "merge"))
    script = by_node(plan="p", left='{"count": 2, "seen": {"a": 1}}', right='{"count": 3, "seen": {"b": 2}}')
    values = bench.run(actor(*nodes, state=state), ScriptedHost(script)).values
    assert values["count"] == 6
    assert values["seen"] == {"a": 1, "b": 2}


def test_two_writers_of_one_plain_key_need_a_reducer(bench: Bench) -> None:
    nodes = (
        thinker("plan", next=("left", "right")),
        thinker("left", output="text"),
        thinker("right", output="text"),
    )
    with pytest.raises(ActorStopped, match="reducer"):
        bench.run(actor(*nodes, state=(TEXT,)), ScriptedHost(by_node(plan="p", left="l", right="r")))


def test_a_join_waits_for_the_longer_branch_and_for_either_way_of_a_router(bench: Bench) -> None:
    nodes = (
        thinker("plan", next=("short", "choose")),
        thinker("short", output="notes", next=("join",)),
        RouterNode(name="choose", routes=(Route("join", "goal == 'skip'"), Route("long"))),
        thinker("long", output="notes", next=("longer",)),
        ToolNode(name="longer", tool="look", output="notes", next=("join",)),
        thinker("join", output="text"),
    )
    replies = by_node(plan="p", short="s", long="l", join="j")
    for goal, notes in (("win", ["l", "s", "tool"]), ("skip", ["s"])):
        host = ScriptedHost(replies, {"look": lambda: "tool"})
        outcome = bench.run(actor(*nodes, state=(TEXT, NOTES)), host, inputs={"goal": goal})
        assert sorted(outcome.values["notes"]) == notes
        assert [thought.node for thought in host.thoughts].count("join") == 1
        assert outcome.values["text"] == "j"


def test_joins_inside_joins_wait_for_their_own_branches(bench: Bench) -> None:
    nodes = (
        ToolNode(name="outer", tool="note", arguments={"who": "outer"}, output="notes", next=("inner", "c")),
        ToolNode(name="inner", tool="note", arguments={"who": "inner"}, output="notes", next=("a", "b")),
        *(
            ToolNode(name=name, tool="note", arguments={"who": name}, output="notes", next=(to,))
            for name, to in (("a", "middle"), ("b", "middle"), ("middle", "last"), ("c", "last"))
        ),
        ToolNode(name="last", tool="note", arguments={"who": "last"}, output="notes"),
    )
    host = ScriptedHost([], {"note": lambda who: who})
    notes = bench.run(actor(*nodes, state=(NOTES,)), host).values["notes"]
    assert sorted(notes) == ["a", "b", "c", "inner", "last", "middle", "outer"]
    assert notes[-1] == "last"
    assert notes.index("middle") > max(notes.index("a"), notes.index("b"))


def test_meetings_of_one_place_are_nested() -> None:
    edges = [("f", "g"), ("f", "c"), ("g", "a"), ("g", "b"), ("a", "j"), ("b", "j"), ("c", "j")]
    inner, outer = joins_of("f", edges, {"f": ("g", "c"), "g": ("a", "b")})
    assert set(inner.groups) == {frozenset({("a", "j")}), frozenset({("b", "j")})}
    assert set(outer.groups) == {frozenset({(inner.name, "j")}), frozenset({("c", "j")})}


def test_branches_of_two_forks_that_meet_at_one_node_are_all_waited_for(bench: Bench) -> None:
    nodes = (
        ToolNode(name="f", tool="note", arguments={"who": "f"}, output="notes", next=("g", "c")),
        ToolNode(name="g", tool="note", arguments={"who": "g"}, output="notes", next=("a", "b")),
        *(
            ToolNode(name=name, tool="note", arguments={"who": name}, output="notes", next=("j",))
            for name in "abc"
        ),
        ToolNode(name="j", tool="note", arguments={"who": "j"}, output="notes"),
    )
    host = ScriptedHost([], {"note": lambda who: who})
    notes = bench.run(actor(*nodes, state=(NOTES,)), host).values["notes"]
    assert notes.count("j") == 1
    assert notes[-1] == "j"


@pytest.mark.parametrize(("goal", "expected"), [("skip", "cjox"), ("win", "abcgjo")])
def test_a_branch_that_may_fork_again_is_waited_for_either_way(
    bench: Bench, goal: str, expected: str
) -> None:
    def noting(name: str, *following: str) -> ToolNode:
        return ToolNode(
            name=name, tool="note", arguments={"who": name}, output="notes", next=following or ("end",)
        )

    nodes = (
        noting("o", "choose", "c"),
        RouterNode(name="choose", routes=(Route("x", "goal == 'skip'"), Route("g"))),
        noting("x", "j"),
        noting("g", "a", "b"),
        *(noting(name, "j") for name in "abc"),
        noting("j"),
    )
    host = ScriptedHost([], {"note": lambda who: who})
    notes = bench.run(actor(*nodes, state=(NOTES,)), host, inputs={"goal": goal}).values["notes"]
    assert "".join(sorted(notes)) == expected
    assert notes[-1] == "j"


def test_a_fork_may_lead_straight_to_where_its_branches_meet(bench: Bench) -> None:
    nodes = (
        ToolNode(name="f", tool="note", arguments={"who": "f"}, output="notes", next=("a", "j")),
        ToolNode(name="a", tool="note", arguments={"who": "a"}, output="notes", next=("j",)),
        ToolNode(name="j", tool="note", arguments={"who": "j"}, output="notes"),
    )
    host = ScriptedHost([], {"note": lambda who: who})
    assert bench.run(actor(*nodes, state=(NOTES,)), host).values["notes"] == ["f", "a", "j"]


def test_a_loop_around_a_fork_waits_anew_each_time(bench: Bench) -> None:
    nodes = (
        ToolNode(name="begin", tool="note", arguments={"who": "begin"}, output="notes", next=("a", "b")),
        ToolNode(name="a", tool="note", arguments={"who": "a"}, output="notes", next=("join",)),
        ToolNode(name="b", tool="note", arguments={"who": "b"}, output="notes", next=("join",)),
        RouterNode(name="join", routes=(Route("end", "len(notes) >= 6"), Route("begin"))),
    )
    host = ScriptedHost([], {"note": lambda who: who})
    notes = bench.run(actor(*nodes, state=(NOTES,)), host).values["notes"]
    assert [sorted(notes[0:3]), sorted(notes[3:6]), len(notes)] == [["a", "b", "begin"]] * 2 + [6]
    assert len({step for _, _, step in host.uses}) == 6, "a second visit's call needs a name of its own"


# ── nested actors ──


def test_a_subgraph_has_its_own_state_and_gives_what_is_asked_for(bench: Bench) -> None:
    inner = actor(
        thinker(prompt="${goal}: ${topic}", output="finding"),
        state=(StateKey("topic"), StateKey("finding")),
        name="local/inner",
    )
    outer = actor(
        SubgraphNode(
            name="ask", actor="local/inner", inputs={"topic": "the ${text}"}, outputs={"text": "finding"}
        ),
        state=(TEXT,),
    )
    host = ScriptedHost(["found"])
    outcome = bench.run(outer, host, inputs={"goal": "win", "text": "sea"}, actors=KnownActors(inner))
    assert outcome.values == {
        "goal": "win",
        "task": "",
        "definition_of_done": "",
        "instructions": "",
        "context": "",
        "text": "found",
    }
    (thought,) = host.thoughts
    assert (thought.actor, thought.node, thought.last) == ("local/inner", "ask.think", "win: the sea")


def test_a_subgraph_that_is_given_a_value_of_another_type_stops(bench: Bench) -> None:
    inner = actor(thinker(), state=(StateKey("count", "integer", "sum"),), name="local/inner")
    outer = actor(SubgraphNode(name="ask", actor="local/inner", inputs={"count": "${goal}"}))
    with pytest.raises(ActorStopped, match="the input 'count' must be of type integer"):
        bench.run(outer, ScriptedHost([]), actors=KnownActors(inner))


def test_a_subgraph_that_is_visited_again_names_its_calls_anew(bench: Bench) -> None:
    inner = actor(ToolNode(name="look", tool="look"), name="local/inner")
    outer = actor(
        SubgraphNode(name="sub", actor="local/inner", next=("note",)),
        ToolNode(name="note", tool="look", output="notes", next=("more",)),
        RouterNode(name="more", routes=(Route("end", "len(notes) == 2"), Route("sub"))),
        state=(NOTES,),
    )
    host = ScriptedHost([], {"look": lambda: "x"})
    bench.run(outer, host, actors=KnownActors(inner), thread_id="p/execute/7/again")
    assert [step for _, _, step in host.uses] == [
        "7.again.sub.look.1",
        "7.again.note.1",
        "7.again.sub#2.look.1",
        "7.again.note.2",
    ]


def test_a_second_visit_is_never_taken_for_a_node_of_another_name(bench: Bench) -> None:
    inner = actor(ToolNode(name="look", tool="look"), name="local/inner")
    outer = actor(
        SubgraphNode(name="sub-2", actor="local/inner", next=("sub",)),
        SubgraphNode(name="sub", actor="local/inner", next=("note",)),
        ToolNode(name="note", tool="look", output="notes", next=("more",)),
        RouterNode(name="more", routes=(Route("end", "len(notes) == 2"), Route("sub"))),
        state=(NOTES,),
    )
    host = ScriptedHost([], {"look": lambda: "x"})
    bench.run(outer, host, actors=KnownActors(inner))
    assert len(host.uses) == 5, "a call was passed over as if it had been made"


def test_a_changed_actor_is_compiled_again(bench: Bench) -> None:
    inner = actor(thinker(prompt="old", output="text"), state=(TEXT,), name="local/inner")
    changed = actor(thinker(prompt="new", output="text"), state=(TEXT,), name="local/inner")
    outer = actor(SubgraphNode(name="sub", actor="local/inner"))
    host = ScriptedHost(["1", "2", "3"])
    for known in (inner, inner, changed):
        bench.run(outer, host, actors=KnownActors(known))
    assert [thought.last for thought in host.thoughts] == ["old", "old", "new"]


def test_the_cache_of_compiled_graphs_is_bounded(bench: Bench) -> None:
    for number in range(66):
        bench.run(
            actor(RouterNode(name="r", routes=(Route("end"),)), name=f"local/a{number}"), ScriptedHost([])
        )
    assert len(bench.runner._graph._compiled) <= 64


# ── limits ──


def endless(limits: ActorLimits) -> Any:
    return actor(thinker("a", next=("b",)), thinker("b", next=("a",)), limits=limits)


def test_steps_end_a_loop(bench: Bench) -> None:
    host = ScriptedHost(lambda _: "again")
    with pytest.raises(ActorStopped, match="5 model and tool calls"):
        bench.run(endless(ActorLimits(steps=5)), host)
    assert len(host.thoughts) == 5


def test_a_loop_without_calls_is_stopped(bench: Bench) -> None:
    nodes = [RouterNode(name=name, routes=(Route(to),)) for name, to in (("a", "b"), ("b", "a"))]
    with pytest.raises(ActorStopped, match="loops without making a call"):
        bench.run(actor(*nodes, limits=ActorLimits(steps=1)), ScriptedHost([]))


def test_tokens_are_reserved_before_the_call_that_might_exceed_them(bench: Bench) -> None:
    host = ScriptedHost(lambda _: says("x", usage=Usage(100, 100)))
    with pytest.raises(ActorStopped, match="limit of 4300 tokens"):
        bench.run(endless(ActorLimits(tokens=4300)), host)
    assert len(host.thoughts) == 2


def test_a_subgraph_is_limited_to_the_remaining_steps(bench: Bench) -> None:
    inner = endless(ActorLimits(steps=50))
    inner = actor(*inner.nodes, name="local/inner")
    outer = actor(
        thinker(next=("sub",)), SubgraphNode(name="sub", actor="local/inner"), limits=ActorLimits(steps=4)
    )
    host = ScriptedHost(lambda _: "again")
    with pytest.raises(ActorStopped, match="4 model and tool calls"):
        bench.run(outer, host, actors=KnownActors(inner))
    assert len(host.thoughts) == 4


def test_branches_together_make_no_more_calls_than_are_allowed(bench: Bench) -> None:
    branches = tuple(thinker(name) for name in "abcd")
    which = actor(thinker(next=tuple("abcd")), *branches, limits=ActorLimits(steps=3))
    host = ScriptedHost(lambda _: "x")
    request = bench.request(which, host)
    for _ in range(3):
        with pytest.raises(ActorStopped, match="3 model and tool calls"):
            bench.again().run(request)
    assert len({thought.key for thought in host.thoughts}) == 3, (
        "what a branch has spent counts after a resume"
    )


def test_branches_wait_if_only_their_worst_case_exceeds_the_limit(bench: Bench) -> None:
    branches = tuple(thinker(name, max_output_tokens=1000) for name in "abcd")
    which = actor(ToolNode(name="fork", tool="look", next=tuple("abcd")), *branches)
    which = replace(which, limits=ActorLimits(tokens=2500))
    gate = threading.Event()
    host = ScriptedHost(lambda _: says("x", usage=Usage(5, 5)), {"look": lambda: "x"}, gate=gate)
    asked: list[str] = []

    def told(progress: Progress) -> None:
        if progress.kind is ProgressKind.THINKING:
            asked.append(progress.node)
            if len(asked) == 2:
                gate.set()  # only now, so that the other two find everything reserved

    bench.run(which, host, told=told)
    assert sorted(asked) == list("abcd")


@pytest.mark.parametrize("limits", [ActorLimits(usd=0.01), ActorLimits(tokens=5000)])
def test_a_subgraph_is_limited_to_the_remaining_budget(bench: Bench, limits: ActorLimits) -> None:
    inner = endless(ActorLimits(steps=50))
    inner = actor(*inner.nodes, name="local/inner")
    outer = actor(thinker(next=("sub",)), SubgraphNode(name="sub", actor="local/inner"), limits=limits)
    priced = ModelFacts("m", 100_000, 1_000, Price(10**6, 2 * 10**6))
    host = ScriptedHost(lambda _: says("x", usage=Usage(0, 1000)), facts=priced)
    request = bench.request(outer, host, actors=KnownActors(inner))
    for _ in range(2):
        with pytest.raises(ActorStopped, match=r"local/test .*might exceed its limit"):
            bench.again().run(request)
        assert len(host.thoughts) == 4, "what a subgraph has spent counts after a resume"


def test_a_raised_step_limit_applies_to_a_resumed_run(bench: Bench) -> None:
    nodes = (thinker("a", next=("b",)), thinker("b"))
    host = ScriptedHost(lambda _: "x")
    request = bench.request(actor(*nodes, limits=ActorLimits(steps=1)), host)
    with pytest.raises(ActorStopped):
        bench.runner.run(request)
    bench.again().run(changed(request, actor=actor(*nodes, limits=ActorLimits(steps=2))))
    assert len(host.thoughts) == 2


def test_time_ends_a_subgraph(bench: Bench) -> None:
    inner = actor(thinker(), name="local/inner", limits=ActorLimits(seconds=0.05))
    outer = actor(SubgraphNode(name="sub", actor="local/inner"))
    host = ScriptedHost(["never"], gate=threading.Event())
    with pytest.raises(DeadlineExceeded, match="local/inner"):
        bench.run(outer, host, actors=KnownActors(inner))
    assert host.cancelled == len(host.thoughts), "nothing of it goes on"


# ── people ──


def test_a_person_is_asked_and_the_answer_goes_on_in_another_process(bench: Bench) -> None:
    nodes = (
        thinker("draft", output="text", next=("ask",)),
        HumanNode(
            name="ask", question="Is ${text} right?", output="reply", choices=("yes", "no"), next=("finish",)
        ),
        thinker("finish", prompt="They said ${reply}.", output="text"),
    )
    which = actor(*nodes, state=(TEXT, StateKey("reply")))
    host = ScriptedHost(by_node(draft="it", finish="finished"))
    request = bench.request(which, host)
    question = bench.runner.run(request).question
    assert question is not None
    assert (question.node, question.text, question.choices) == ("ask", "Is it right?", ("yes", "no"))
    again = bench.again()
    assert again.run(request).question == question, "asked anew, it asks the same"
    for refused in (QuestionAnswer(question.id, "maybe"), QuestionAnswer("another", "yes")):
        unheard = bench.request(which, host, thread_id=request.thread_id, answer=refused)
        assert again.run(unheard).question == question
    answer = QuestionAnswer(question.id, "yes")
    outcome = again.run(bench.request(which, host, thread_id=request.thread_id, answer=answer))
    assert outcome.question is None
    assert outcome.values["reply"] == "yes"
    assert [thought.node for thought in host.thoughts] == ["draft", "finish"]


def test_a_question_inside_a_subgraph_is_answered_there(bench: Bench) -> None:
    inner = actor(
        thinker("draft", next=("ask",)),
        HumanNode(name="ask", question="Well?", output="reply", next=("finish",)),
        thinker("finish", prompt="${reply}"),
        state=(StateKey("reply"),),
        name="local/inner",
    )
    outer = actor(SubgraphNode(name="sub", actor="local/inner", outputs={"text": "reply"}), state=(TEXT,))
    host = ScriptedHost(lambda thought: "x")
    request = bench.request(outer, host, actors=KnownActors(inner))
    question = bench.runner.run(request).question
    assert question is not None
    assert question.node == "sub.ask"
    answered = changed(request, answer=QuestionAnswer(question.id, "go"))
    assert bench.again().run(answered).values["text"] == "go"
    assert [thought.node for thought in host.thoughts] == ["sub.draft", "sub.finish"]


def test_two_questions_at_once_are_asked_one_after_the_other(bench: Bench) -> None:
    def heard(thought: RecordedModelCall) -> str:
        return thought.last

    nodes = (
        thinker("plan", next=("first", "second")),
        HumanNode(name="first", question="First?", output="notes", next=("join",)),
        HumanNode(name="second", question="Second?", output="notes", next=("join",)),
        thinker("join", prompt="${notes}"),
    )
    which = actor(*nodes, state=(NOTES,))
    host = ScriptedHost(heard)
    thread = bench.thread()
    asked = [bench.run(which, host, thread_id=thread).question]
    for text in ("1", "2"):
        assert asked[-1] is not None
        outcome = bench.run(which, host, thread_id=thread, answer=QuestionAnswer(asked[-1].id, text))
        asked.append(outcome.question)
    assert [question and question.text for question in asked] == ["First?", "Second?", None]
    assert outcome.values["notes"] == ["1", "2"]
    assert [thought.node for thought in host.thoughts] == ["plan", "join"]


def test_a_question_that_is_asked_twice_is_two_questions(bench: Bench) -> None:
    nodes = (
        HumanNode(name="ask", question="More?", output="notes", next=("choose",)),
        RouterNode(name="choose", routes=(Route("end", "len(notes) == 2"), Route("ask"))),
    )
    which, host, thread = actor(*nodes, state=(NOTES,)), ScriptedHost([]), bench.thread()
    first = bench.run(which, host, thread_id=thread).question
    assert first is not None
    second = bench.run(which, host, thread_id=thread, answer=QuestionAnswer(first.id, "yes")).question
    assert second is not None
    assert second.id != first.id
    assert bench.run(which, host, thread_id=thread, answer=QuestionAnswer(first.id, "yes")).question == second
