"""Validation of an actor's graph: every mistake is found at its place, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from cleveragents.actors.conditions import Condition
from cleveragents.actors.graph.state import answer_schema
from cleveragents.actors.model.actor import (
    Actor,
    HumanNode,
    LlmNode,
    Node,
    Reducer,
    Route,
    RouterNode,
    StateKey,
    StateType,
    SubgraphNode,
    ToolNode,
)
from cleveragents.actors.model.paths import (
    concurrent_nodes,
    never_ending,
    router_circle,
    unreachable,
    written_by,
)
from cleveragents.actors.model.rules import NODES_LIMIT, ActorEnvironment, actor_problems
from cleveragents.core.errors import UnknownActor
from cleveragents.core.json_value import FrozenObject, JsonValue


def llm(name: str, *after: str, **fields: object) -> LlmNode:
    given = {"prompt": "${task}", "next": after or ("end",), **fields}
    return LlmNode(name=name, **given)


def router(name: str, *routes: tuple[str, str | None]) -> RouterNode:
    return RouterNode(name=name, routes=tuple(Route(to, when) for to, when in routes))


def actor(*nodes: Node, state: tuple[StateKey, ...] = (), entry: str = "") -> Actor:
    return Actor(name="team/x", entry=entry or nodes[0].name, nodes=nodes, state=state)


def problems(judged: Actor, **around: object) -> dict[tuple[str | int, ...], str]:
    surroundings = ActorEnvironment(condition=Condition, **around)
    return dict(actor_problems(judged, surroundings))


KEYS = (
    StateKey("report"),
    StateKey("verdict"),
    StateKey("files", "list", "append"),
    StateKey("count", "integer", "sum"),
    StateKey("facts", "object", "merge"),
)


def test_a_sound_graph_has_no_problems() -> None:
    sound = actor(
        llm(
            "plan",
            "left",
            "right",
            tools=("read", "*", "search__web"),
            output="facts",
            schema={"type": "object"},
        ),
        llm("left", "meet", output="files"),
        ToolNode(name="right", tool="read", arguments={"path": "${task}"}, output="files", next=("meet",)),
        SubgraphNode(
            name="meet", actor="team/other", inputs={"task": "${files}"}, outputs={"report": "done"}
        ),
        state=KEYS,
    )
    closing = router("judge", ("end", "verdict == 'ok' and len(files) > 1"), ("ask", None))
    asking = HumanNode(name="ask", question="${files}?", output="verdict", next=("judge",))
    meet = changed(sound.nodes[3], next=("judge",))
    whole = replace(sound, nodes=(*sound.nodes[:3], meet, closing, asking))
    other = actor(llm("x", output="done"), state=(StateKey("done"),))
    assert problems(whole, tools=["read"], find=lambda name: other) == {}


# ── Paths ─────────────────────────────────────────────────────────────────────────────────────────


def test_unknown_node_names_are_reported_at_their_places() -> None:
    judged = actor(llm("one", "tow"), router("two", ("on", "task == ''"), ("end", None)), entry="oen")
    found = problems(judged)
    assert found == {
        ("nodes", "one", "next", 0): "there is no node 'tow'; did you mean 'two'?",
        ("nodes", "two", "routes", 0, "to"): "there is no node 'on'; did you mean 'one'?",
        ("entry",): "there is no node 'oen'; did you mean 'one'?",
    }


def test_end_is_no_place_to_begin() -> None:
    assert ("entry",) in problems(actor(llm("one"), entry="end"))


def test_a_node_that_nothing_leads_to_is_an_orphan() -> None:
    found = problems(actor(llm("one"), llm("lost", "one"), llm("loster", "lost")))
    assert set(found) == {("nodes", "lost"), ("nodes", "loster")}
    assert found["nodes", "lost"] == "no node leads to 'lost'; add it to a `next`, or remove it"


def test_a_loop_without_an_exit_is_reported() -> None:
    found = problems(actor(llm("one", "two"), llm("two", "three"), llm("three", "two")))
    assert set(found) == {("nodes", "one"), ("nodes", "two"), ("nodes", "three")}
    assert found["nodes", "two"].startswith("no path leads from 'two' to 'end'; add a path from it")


def test_a_loop_with_an_exit_is_valid() -> None:
    judged = actor(llm("work", "judge"), router("judge", ("work", "task == 'x'"), ("end", None)))
    assert problems(judged) == {}


def test_routers_that_lead_only_to_each_other_are_a_circle_even_with_a_way_out() -> None:
    one = router("one", ("two", "task == 'x'"), ("end", None))
    two = router("two", ("three", "task == 'x'"), ("one", None))
    three = router("three", ("end", None))
    found = problems(actor(one, two, three))
    assert set(found) == {("nodes", "one")}
    assert found["nodes", "one"].startswith("'one', 'two': these routers form an endless loop; add")
    itself = actor(router("one", ("one", "task == 'x'"), ("end", None)))
    assert ("nodes", "one") in problems(itself)


def test_a_router_needs_a_default_and_reachable_routes() -> None:
    nowhere = problems(actor(router("one", ("end", "task == 'x'"))))
    assert nowhere["nodes", "one", "routes"].endswith("add a route without `when`, such as `- to: end`")
    shadowed = problems(actor(router("one", ("end", None), ("end", "task == 'x'"), ("end", None))))
    assert set(shadowed) == {("nodes", "one", "routes", 0)}


def test_a_next_names_each_node_once_and_end_alone() -> None:
    found = problems(actor(llm("one", "two", "two", "end"), llm("two")))
    assert found["nodes", "one", "next", 1] == "'two' is listed twice; remove one"
    assert found["nodes", "one", "next", 2] == "'end' cannot be combined with other names; remove it"


def test_an_excessive_number_of_nodes_is_not_checked() -> None:
    many = [llm(f"n{number}", "nowhere") for number in range(NODES_LIMIT + 1)]
    assert list(problems(actor(*many))) == [("nodes",)]


# ── Parallel nodes ────────────────────────────────────────────────────────────────────────────────


def fork(*branches: Node, reducer: Reducer = "replace", kind: StateType = "string") -> Actor:
    first = llm("first", *(node.name for node in branches if node.name != "later"))
    return actor(first, *branches, state=(StateKey("report", kind, reducer),))


def test_branches_that_write_one_key_at_once_are_refused() -> None:
    left, right = llm("left", output="report"), llm("right", output="report")
    found = problems(fork(left, right))
    assert found == {
        ("nodes", "right"): "'left' and 'right' run in parallel and both write 'report'; "
        "give the key a reducer (append, sum, merge), or write to different keys"
    }
    assert problems(fork(left, right, reducer="append", kind="list")) == {}


def test_nodes_after_a_meeting_write_alone() -> None:
    left, right = llm("left", "later", output="report"), llm("right", "later")
    assert problems(fork(left, right, llm("later", output="report"))) == {}


def test_every_kind_of_node_and_the_parts_of_an_answer_are_writers() -> None:
    keys = {"a", "b", "report"}
    schema = FrozenObject({"type": "object", "properties": {"a": {}, "other": {}}})
    assert written_by(llm("x", output="report", schema=schema), keys) == {"a", "report"}
    assert written_by(llm("x", schema=FrozenObject({"properties": ["a"]})), keys) == set()
    assert written_by(ToolNode(name="x", tool="t", output="b"), keys) == {"b"}
    assert written_by(HumanNode(name="x", question="?", output="b"), keys) == {"b"}
    assert written_by(SubgraphNode(name="x", actor="a/b", outputs={"a": "z", "q": "z"}), keys) == {"a"}
    assert written_by(router("x", ("end", None)), keys) == set()


def test_a_router_takes_one_way_so_its_ways_do_not_run_at_once() -> None:
    judged = actor(
        router("first", ("left", "task == 'x'"), ("right", None)), llm("left"), llm("right"), entry="first"
    )
    assert list(concurrent_nodes(judged)) == []


def test_a_branch_of_a_branch_runs_beside_the_other_branch() -> None:
    nodes = (llm("a", "b", "c"), llm("b", "d", "e"), llm("c", "f"), llm("d", "f"), llm("e", "f"), llm("f"))
    pairs = {frozenset(pair) for pair in concurrent_nodes(actor(*nodes))}
    assert pairs == {frozenset(pair) for pair in ("bc", "cd", "ce", "de")}


# ── Nodes and keys ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["end", "start", "Plan", "a.b", "a:b", "a b", "", "1st", "x" * 64])
def test_names_that_no_node_can_have(name: str) -> None:
    assert ("nodes", name) in problems(actor(llm(name)))


@pytest.mark.parametrize("name", ["goal", "task", "class", "and", "Upper", "a-b", "ä", ""])
def test_names_that_no_key_can_have(name: str) -> None:
    assert ("state", name) in problems(actor(llm("x"), state=(StateKey(name),)))


@pytest.mark.parametrize(
    ("kind", "reducer", "sound"),
    [
        ("list", "append", True),
        ("integer", "sum", True),
        ("number", "sum", True),
        ("object", "merge", True),
        ("string", "replace", True),
        ("string", "append", False),
        ("object", "append", False),
        ("list", "sum", False),
        ("list", "merge", False),
    ],
)
def test_a_reducer_is_for_values_it_can_join(kind: StateType, reducer: Reducer, sound: bool) -> None:
    found = problems(actor(llm("x"), state=(StateKey("k", kind, reducer),)))
    assert (("state", "k", "reducer") not in found) is sound


@pytest.mark.parametrize(
    ("kind", "default", "sound"),
    [
        ("string", "x", True),
        ("string", None, True),
        ("integer", 1, True),
        ("number", 1.5, True),
        ("number", 1, True),
        ("boolean", False, True),
        ("list", (), True),
        ("object", FrozenObject({}), True),
        ("string", 1, False),
        ("integer", True, False),
        ("integer", 1.5, False),
        ("boolean", 1, False),
        ("list", "x", False),
        ("object", (), False),
    ],
)
def test_a_default_is_of_its_type(kind: StateType, default: JsonValue, sound: bool) -> None:
    found = problems(actor(llm("x"), state=(StateKey("k", kind, default=default),)))
    assert (("state", "k", "default") not in found) is sound


def test_keys_that_do_not_exist_are_found_in_every_text() -> None:
    nodes = (
        llm("a", "b", system="${rport}", prompt="${taks} ${files}"),
        HumanNode(name="b", question="${", output="report", next=("c",)),
        ToolNode(name="c", tool="t", arguments={"deep": ["${goal}", "x${files}"]}, next=("d",)),
        SubgraphNode(name="d", actor="a/b", inputs={"task": "${nothing_like_it}"}, next=("e",)),
        router("e", ("end", "verdct == 'x'"), ("end", None)),
    )
    found = problems(actor(*nodes, state=KEYS))
    assert found["nodes", "a", "system"].startswith(
        "there is no key of the state 'rport'; did you mean ${report}?"
    )
    assert found["nodes", "a", "prompt"].startswith("there is no key of the state 'taks'")
    assert "is not closed" in found["nodes", "b", "question"]
    assert "files is a list, so" in found["nodes", "c", "with", "deep", 1]
    assert (
        "known: goal, task, definition_of_done, instructions, context, report"
        in found["nodes", "d", "inputs", "task"]
    )
    assert "did you mean verdict?" in found["nodes", "e", "routes", 0, "when"]
    assert len(found) == 6


def test_outputs_go_to_keys_of_the_actors_own() -> None:
    nodes = (
        llm("a", "b", output="reprot"),
        ToolNode(name="b", tool="t", output="goal", next=("c",)),
        SubgraphNode(name="c", actor="a/b", outputs={"zzz": "x"}),
    )
    found = problems(actor(*nodes, state=KEYS))
    assert found == {
        ("nodes", "a", "output"): "the state has no key 'reprot'; did you mean 'report'? "
        "If not, declare it: `state: {reprot: {type: string}}`",
        ("nodes", "b", "output"): "'goal' is a read-only input of the run; write to another key",
        ("nodes", "c", "outputs", "zzz"): "the state has no key 'zzz'; "
        "declare it: `state: {zzz: {type: string}}`",
    }


def test_a_nodes_output_fits_its_key() -> None:
    keys = (*KEYS, StateKey("sure", "boolean"), StateKey("rows", "list"))
    shape = {"type": "object"}
    wrong = problems(
        actor(
            llm("a", "b", output="count"),
            llm("b", "c", output="rows"),
            llm("c", "d", output="count", schema=shape),
            HumanNode(name="d", question="?", output="sure", next=("e",)),
            llm("e", "f", output="facts", schema=shape),
            llm("f", "g", output="report", schema=shape),
            SubgraphNode(name="g", actor="team/y", outputs={"count": "goal", "facts": "n", "files": "n"}),
            state=keys,
        ),
        find=lambda name: actor(llm("x"), state=(StateKey("n", "integer"),)),
    )
    assert {place[1:] for place in wrong} == {
        ("a", "output"),
        ("b", "output"),
        ("c", "output"),
        ("d", "output"),
        ("g", "outputs", "count"),
        ("g", "outputs", "facts"),
    }
    assert "writes text to 'count', which has type integer" in wrong["nodes", "a", "output"]
    assert "a `schema` with that property" in wrong["nodes", "a", "output"]
    assert "`reducer: append`" in wrong["nodes", "b", "output"]
    assert "writes an object to 'count'" in wrong["nodes", "c", "output"]
    assert wrong["nodes", "d", "output"].endswith("which has type boolean; set `type: string`")
    assert "set `type: integer`" in wrong["nodes", "g", "outputs", "facts"]


def test_tools_are_those_that_exist_unless_a_server_brings_them() -> None:
    tools = ("raed", "read", "read", "mcp__x__y", "server.tool", "*")
    judged = actor(llm("a", "b", tools=tools), ToolNode(name="b", tool="wrte"))
    assert problems(judged, tools=["read", "write"]) == {
        ("nodes", "a", "tools", 0): "there is no tool 'raed'; did you mean 'read'?",
        ("nodes", "a", "tools", 2): "'read' is listed twice; remove one",
        ("nodes", "b", "tool"): "there is no tool 'wrte'; did you mean 'write'?",
    }
    assert set(problems(judged)) == {("nodes", "a", "tools", 2)}


def test_an_answers_schema_is_that_of_an_object_and_fits_the_state() -> None:
    schema = FrozenObject(
        {
            "type": "array",
            "properties": {
                "report": {"type": "array"},
                "files": {"type": "array"},
                "count": {"type": "integer"},
                "facts": {"type": ["object", "null"]},
                "verdict": {"enum": ["a"]},
            },
        }
    )
    found = problems(actor(llm("a", schema=schema), state=KEYS))
    assert set(found) == {("nodes", "a", "schema"), ("nodes", "a", "schema", "properties", "report")}
    assert "has type array in the schema and type string in the state" in str(list(found.values()))


def test_the_choices_for_an_answer_come_from_a_list_or_a_text() -> None:
    names = ("files", "report", "task", "count", "fils")
    properties = {f"of_{name}": {"enum": [f"${{{name}}}"]} for name in names}
    schema = FrozenObject({"type": "object", "properties": properties})
    place = ("nodes", "a", "schema", "properties")
    assert problems(actor(llm("a", schema=schema), state=KEYS)) == {
        (*place, "of_count", "enum"): (
            "'count' has type integer; choices come from a list or from the lines of a string"
        ),
        (*place, "of_fils", "enum"): "there is no key of the state 'fils'; did you mean 'files'?",
    }


@pytest.mark.parametrize("value", [None, 5, True, {"a": 1}, [], ""])
def test_a_value_without_choices_does_not_limit_an_answer(value: object) -> None:
    """None may replace any value of the state."""
    schema = FrozenObject({"type": "object", "properties": {"file": {"enum": ["${files}"]}}})
    limited = answer_schema(llm("a", schema=schema), {"files": value})
    assert limited == {"type": "object", "properties": {"file": {}}}


def test_subgraphs_name_actors_that_exist_and_keys_that_they_have() -> None:
    other = actor(llm("x"), state=(StateKey("done"),))

    def find(name: str) -> Actor:
        if name != "team/other":
            raise UnknownActor(name, "team/other")
        return other

    nodes = (
        SubgraphNode(name="a", actor="team/othr", next=("b",)),
        SubgraphNode(
            name="b",
            actor="team/other",
            inputs={"dnoe": "x", "task": "x"},
            outputs={"report": "x"},
            next=("c",),
        ),
        SubgraphNode(name="c", actor="team/x"),
    )
    judged = actor(*nodes, state=KEYS)
    found = problems(judged, find=find)
    assert "did you mean team/other?" in found["nodes", "a", "actor"]
    assert (
        found["nodes", "b", "inputs", "dnoe"] == "team/x has no key 'dnoe' in its state; did you mean 'done'?"
    )
    assert "has no key 'x' in its state" in found["nodes", "b", "outputs", "report"]
    assert "the actor would run itself" in found["nodes", "c", "actor"]
    assert len(found) == 4
    assert set(problems(judged)) == {("nodes", "c", "actor")}


# ── Any input ─────────────────────────────────────────────────────────────────────────────────────

names = st.sampled_from(["a", "b", "c", "d", "end", "nowhere"])
nodes = st.one_of(
    st.builds(llm, names, names, names, output=st.sampled_from([None, "report", "x"])),
    st.builds(router, names, st.tuples(names, st.sampled_from([None, "task == 'x'", "1 +"]))),
    st.builds(SubgraphNode, name=names, actor=names),
    st.builds(HumanNode, name=names, question=st.text(max_size=5), output=names),
)


@given(st.lists(nodes, max_size=6), names)
def test_any_graph_can_be_validated(drawn: list[Node], entry: str) -> None:
    judged = Actor(name="a/b", entry=entry, nodes=tuple(drawn), state=(StateKey("report"),))
    found = actor_problems(judged, ActorEnvironment(condition=Condition))
    known = {node.name for node in drawn}
    sound = known and not found
    if sound:
        assert entry in known
        assert unreachable(judged) == never_ending(judged) == router_circle(judged) == ()
        assert {to for node in drawn for to in node.next} <= {*known, "end"}
