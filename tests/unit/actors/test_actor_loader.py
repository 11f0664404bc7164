"""Actors in YAML: loaded correctly, or refused with every mistake, its line and its remedy."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.actors.loader import load_actor
from cleveragents.actors.model.actor import (
    Actor,
    ActorLimits,
    HumanNode,
    LlmNode,
    Route,
    RouterNode,
    StateKey,
    SubgraphNode,
    ToolNode,
)
from cleveragents.actors.prompt_files import prompts_beside
from cleveragents.core.errors import ConfigurationError, InvalidActor, UnknownActor

WHOLE = """\
name: team/careful
type: graph
description: |
  Works, and has it read.
model: openai/large
state:
  report: {description: what was done}
  findings: {type: list, reducer: append, default: [x]}
  answer: {type: string}
limits: {steps: 50, tokens: 1000, usd: 1, seconds: 60.5}
read_only: true
entry: work
nodes:
  work:
    type: llm
    system: Be careful.
    prompt: "${task}"
    model: openai/small
    tools: [read, "*"]
    output: report
    schema: {type: object, properties: {answer: {type: string}}}
    max_output_tokens: 500
    temperature: 0.5
    next: [check, ask]
  check:
    type: tool
    tool: command
    with: {argv: [ls, "${findings}"]}
    output: findings
    next: judge
  ask:
    type: human
    question: Go on?
    choices: [yes, no]
    output: answer
    next: judge
  judge:
    type: router
    routes:
      - {to: end, when: "answer == 'yes'"}
      - {to: again}
  again:
    type: subgraph
    actor: builtin/executor
    inputs: {task: "${report}"}
    outputs: {report: report}
"""
SMALL = 'name: a/b\ntype: llm\nprompt: "${task}"\n'


def problems(text: str | bytes, **options: object) -> list[str]:
    with pytest.raises(InvalidActor) as refused:
        load_actor(text, "file.yaml", **options)
    assert refused.value.source == "file.yaml"
    return list(refused.value.problems)


def changed(old: str, new: str) -> str:
    assert old in WHOLE
    return WHOLE.replace(old, new, 1)


def test_the_whole_of_a_graph_is_read() -> None:
    actor = load_actor(WHOLE, "file.yaml", tools=["read", "command"])
    assert actor == Actor(
        name="team/careful",
        description="Works, and has it read.",
        model="openai/large",
        entry="work",
        read_only=True,
        limits=ActorLimits(50, 1000, 1, 60.5),
        state=(
            StateKey("report", description="what was done"),
            StateKey("findings", "list", "append", ("x",)),
            StateKey("answer"),
        ),
        nodes=(
            LlmNode(
                name="work",
                prompt="${task}",
                system="Be careful.",
                model="openai/small",
                tools=("read", "*"),
                output="report",
                schema={"type": "object", "properties": {"answer": {"type": "string"}}},
                max_output_tokens=500,
                temperature=0.5,
                next=("check", "ask"),
            ),
            ToolNode(
                name="check",
                tool="command",
                arguments={"argv": ("ls", "${findings}")},
                output="findings",
                next=("judge",),
            ),
            HumanNode(name="ask", question="Go on?", choices=("yes", "no"), output="answer", next=("judge",)),
            RouterNode(name="judge", routes=(Route("end", "answer == 'yes'"), Route("again"))),
            SubgraphNode(
                name="again",
                actor="builtin/executor",
                inputs={"task": "${report}"},
                outputs={"report": "report"},
            ),
        ),
    )
    assert actor.document == WHOLE


def test_an_llm_actor_is_a_graph_of_one_node_with_its_keys_at_the_top() -> None:
    actor = load_actor(SMALL + "tools: [read]\nmodel: a/b\n", "file.yaml")
    assert actor.nodes == (LlmNode(name="think", prompt="${task}", tools=("read",), model="a/b"),)
    assert (actor.entry, actor.model, actor.limits.steps) == ("think", "a/b", 200)


def test_json_is_read_as_json_spells_it() -> None:
    said = "a woman \N{WOMAN}, \N{LATIN SMALL LETTER E WITH ACUTE}"
    told = json.dumps({"name": "a/b", "type": "llm", "prompt": said})
    assert "\\ud83d" in told
    [node] = load_actor(told, "file.yaml").nodes
    assert isinstance(node, LlmNode)
    assert node.prompt == said


def test_a_tool_actor_is_a_graph_of_one_node_too() -> None:
    text = "name: a/b\ntype: tool\ntool: command\nwith: {argv: [ls]}\noutput: seen\nstate: {seen: {}}\n"
    actor = load_actor(text, "file.yaml")
    assert actor.nodes == (ToolNode(name="call", tool="command", arguments={"argv": ("ls",)}, output="seen"),)
    assert actor.entry == "call"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "name: team/careful",
            "name: Careful",
            "line 1: 'Careful' is not a valid name; write namespace",
        ),
        ("name: team/careful\n", "", "line 1: 'name' is missing; for example: name: team/helper"),
        ("type: graph", "type: grph", "line 2: there is no type 'grph'; did you mean 'graph'?"),
        ("type: graph", "type: 5", "line 2: there is no type '5'; known: llm, graph, tool"),
        ("type: graph\n", "", "line 1: 'type' is missing; for example: type: llm"),
        ("model: openai/large", "modle: x", "line 5: unknown key 'modle'; did you mean 'model'?"),
        ("model: openai/large", "model: 5", "line 5: 'model' should be text; put it in quotes"),
        ("description: what was", "descr: what was", "line 7: unknown key 'descr'; did you mean 'desc"),
        ("type: list", "type: array", "line 8: 'type' should be 'string', 'integer', 'number'"),
        ("[x]", "x", "line 8: the default must be of type list"),
        ("steps: 50", "steps: 0", "line 10: 'steps' should be greater than or equal to 1"),
        ("usd: 1", "usd: -1", "line 10: 'usd' should be greater than 0"),
        ("seconds: 60.5", "second: 1", "line 10: unknown key 'second'; did you mean 'seconds'?"),
        ("read_only: true", "read_only: 1", "line 11: 'read_only' should be true or false"),
        ("entry: work", "entry: wrok", "line 12: there is no node 'wrok'; did you mean 'work'?"),
        ("entry: work\n", "", "line 1: 'entry' is missing; for example: entry: plan"),
        ("    type: llm\n", "", "line 14: 'type' is missing; for example: type: llm"),
        ("type: llm", "type: lmm", "line 15: there is no type 'lmm'; did you mean 'llm'?"),
        ('    prompt: "${task}"\n', "", "line 14: 'prompt' is missing; for example: prompt:"),
        ("${task}", "${taks}", "line 17: there is no key of the state 'taks'; did you mean ${task}?"),
        ('"${task}"', "{file: a.md, x: 1}", "line 17: 'prompt' must be text or {file: prompts/name.md}"),
        ('"${task}"', "[a]", "line 17: 'prompt' should be text; put it in quotes"),
        ("[read,", "[raed,", "line 19: there is no tool 'raed'; did you mean 'read'?"),
        ("[read,", "[5,", "line 19: entry 1 of 'tools' should be text; put it in quotes"),
        ("output: report", "output: reprot", "line 20: the state has no key 'reprot'; did you mean"),
        ("{type: object,", "{type: list,", "line 21: the schema of an answer must describe an object"),
        ("{type: object,", "{type: object, required: 5,", "line 21: not a valid JSON Schema: 5 is not of"),
        ("{answer: {", "{answer: {$ref: 'http://x/y', ", "line 21: 'http://x/y' refers outside this schema"),
        (
            "{answer: {",
            "{answer: {enum: ['${findngs}'], ",
            "line 21: there is no key of the state 'findngs'; did you mean 'findings'?",
        ),
        ("temperature: 0.5", "temperature: hot", "line 23: 'temperature' should be a number"),
        ("[check, ask]", "[chek, ask]", "line 24: there is no node 'chek'; did you mean 'check'?"),
        ("[check, ask]", "[]", "line 24: 'next' is empty"),
        ("[check, ask]", "{a: b}", "line 24: 'next' should be a list: [a, b]"),
        ("tool: command", "tol: command", "line 27: unknown key 'tol'; did you mean 'tool'?"),
        ("with: {argv: [ls,", "with: {argv: [ls, 'x${findings}',", "line 28: findings is a list, so"),
        ("question: Go on?", "question: ''", "line 33: 'question' is empty"),
        ("    output: answer\n", "", "line 31: 'output' is missing; for example: output: answer"),
        ("to: end, when", "too: end, when", "line 40: unknown key 'too'; did you mean 'to'?"),
        (
            "answer == 'yes'",
            "anser == 'yes'",
            "line 40: the condition \"anser == 'yes'\": the state has no key 'anser'",
        ),
        ("      - {to: again}\n", "", "line 39: no route matches if all conditions are false"),
        ("outputs: {report: report}", "outputs: {report: 5}", "line 46: 'report' should be text"),
        ("actor: ", "actor: /x.yaml #", "line 44: '/x.yaml' is a file; use the name of the actor in it"),
        ("  again:\n", "  end:\n", "line 42: 'end' is a reserved name"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_a_remedy(old: str, new: str, problem: str) -> None:
    found = problems(changed(old, new), tools=["read", "command"])
    assert [told for told in found if told.startswith(problem)], found


def test_all_mistakes_are_reported_together_in_the_order_of_the_lines() -> None:
    text = changed("team/careful", "X").replace("entry: work", "entry: wrok").replace("usd: 1", "usd: x")
    text = (
        text.replace("[read,", "[raed,").replace("tool: command", "tool: 5").replace("to: again", "to: agian")
    )
    lines = [int(problem.split()[1].rstrip(":")) for problem in problems(text, tools=["read", "command"])]
    assert lines == [1, 10, 12, 19, 27, 41]


def test_the_mistakes_of_an_actor_without_nodes_are_where_its_keys_are() -> None:
    text = 'name: a/b\ntype: llm\ntools: [raed]\noutput: x\nprompt: "${taks}"\nnext: end\n'
    assert problems(text, tools=["read"]) == [
        "line 3: there is no tool 'raed'; did you mean 'read'?",
        "line 4: the state has no key 'x'; declare it: `state: {x: {type: string}}`",
        "line 5: there is no key of the state 'taks'; did you mean ${task}? (write $${ for a literal ${)",
        "line 6: unknown key 'next'; known here: name, description, state, limits, read_only, "
        "checks_first, fix_attempts, undo_failed_fixes, type, system, "
        "prompt, model, tools, output, schema, max_output_tokens, temperature",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "the file is empty; begin it with `name: namespace/name`"),
        (b"- a\n", "the file is not a YAML mapping; begin it with `name: namespace/name`"),
        (b"\x7fELF\x00\x01", "the file is binary; write YAML text"),
        (b"name: a/b\n---\nname: c/d\n", "line 2: a second document begins here; one file holds one actor"),
        (b"name: &a a/b\n", "line 1: anchors and aliases"),
        (b'name: a/b\nprompt: "\\udc69"\n', "line 2: an incomplete character"),
        (b'name: a/b\n"\\ud83d": x\n', "line 2: an incomplete character"),
        (b"name: a/b\ntype: graph\nentry: a\nnodes: {}\n", "line 4: 'nodes' is empty"),
        (b"name: a/b\ntype: graph\nentry: a\nnodes: [a]\n", "line 4: 'nodes' should be a mapping"),
        (b"name: a/b\ntype: graph\nentry: a\nnodes: {a: 5}\n", "line 4: 'a' should be a mapping: key: value"),
    ],
)
def test_a_file_that_is_not_an_actor_is_reported(text: bytes, problem: str) -> None:
    assert [told for told in problems(text) if told.startswith(problem)]


def test_more_nodes_than_allowed_are_one_mistake() -> None:
    nodes = "".join(f"  n{number}: {{type: llm, prompt: x}}\n" for number in range(101))
    found = problems(f"name: a/b\ntype: graph\nentry: n0\nnodes:\n{nodes}")
    assert len(found) == 2
    assert all(told.startswith("line 4: ") for told in found)


class Others:
    """A library with a single actor."""

    def get(self, name: str) -> Actor:
        if name == "builtin/executor":
            return Actor(name=name, entry="x", nodes=(), state=(StateKey("report"),))
        raise UnknownActor(name, "builtin/executor")


def test_other_actors_are_looked_at_where_they_are_known() -> None:
    load_actor(WHOLE, "file.yaml", actors=Others())
    (unknown,) = problems(changed("builtin/executor", "builtin/exec"), actors=Others())
    assert unknown == "line 44: there is no actor 'builtin/exec'; did you mean builtin/executor?"
    (no_key,) = problems(changed("{report: report}", "{report: repot}"), actors=Others())
    assert no_key.startswith(
        "line 46: builtin/executor has no key 'repot' in its state; did you mean 'report'"
    )
    (itself,) = problems(changed("builtin/executor", "team/careful"), actors=Others())
    assert itself == (
        "line 44: the actor would run itself in a loop: team/careful → team/careful; name another actor"
    )


# ── Prompts in files ──────────────────────────────────────────────────────────────────────────────

FILED = "name: a/b\ntype: llm\nsystem: {file: s.md}\nprompt: {file: prompts/p.txt}\n"


def test_prompts_may_stand_in_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "s.md").write_text("Be brief.\n")
    (tmp_path / "prompts" / "p.txt").write_text("\ufeff${task}\n\n", encoding="utf-8")
    actor = load_actor(FILED, "file.yaml", prompts=prompts_beside(tmp_path))
    assert actor.nodes == (LlmNode(name="think", system="Be brief.", prompt="${task}"),)


def test_a_mistake_in_a_prompts_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "s.md").write_text("${gaol}")
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "p.txt").write_text(" \n")
    first, second = problems(FILED, prompts=prompts_beside(tmp_path))
    assert first.startswith("line 3: there is no key of the state 'gaol'; did you mean ${goal}?")
    assert first.endswith(" (in s.md)")
    assert second == "line 4: prompts/p.txt is empty; write the prompt into it"


@pytest.mark.parametrize(
    "path", ["../s.md", "/etc/s.md", "a/b/s.md", "./s.md", "s.yaml", "s", "", "a/../s.md", "a//s.md", ".md"]
)
def test_a_prompt_comes_from_beside_the_file_and_nowhere_else(path: str) -> None:
    def read(relative: str) -> bytes:
        raise AssertionError(f"{relative} was read")

    found = problems(FILED.replace("s.md", f'"{path}"').replace("{file: prompts/p.txt}", "x"), prompts=read)
    assert found[0].startswith(f"line 3: {path!r} is not a prompt file; use a path like prompts/plan")


def test_a_link_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    (tmp_path / "actors").mkdir()
    (tmp_path / "actors" / "s.md").symlink_to(tmp_path / "secret.md")
    text = FILED.replace("{file: prompts/p.txt}", "x")
    (found,) = problems(text, prompts=prompts_beside(tmp_path / "actors"))
    assert found == "line 3: s.md leads out of the repository; replace the link with the file"


def refuse(relative: str) -> bytes:
    raise ConfigurationError(relative, "is not a regular file")


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (None, "prompt files are not supported here; write the prompt inline"),
        (lambda relative: None, "there is no prompt file 's.md'"),
        (lambda relative: b"x" * 70_000, "s.md is larger than 64 KiB; shorten the prompt"),
        (lambda relative: b"\xff", "s.md is not UTF-8 text; save it as UTF-8"),
        (refuse, "s.md is not a regular file"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_a_mistake_like_any(read: object, problem: str) -> None:
    text = FILED.replace("{file: prompts/p.txt}", "x")
    assert problems(text, prompts=read) == [f"line 3: {problem}"]


# ── Any input ─────────────────────────────────────────────────────────────────────────────────────

words = st.sampled_from(
    [
        *(
            "a",
            "b",
            "end",
            "llm",
            "graph",
            "tool",
            "router",
            "human",
            "subgraph",
            "${task}",
            "${x}",
            "task == ''",
        ),
        *("list", "append", "a/b", "*", "x.md", ""),
    ]
)
leaves = st.one_of(words, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False))
keys = st.sampled_from(
    [
        *("name", "type", "state", "nodes", "entry", "limits", "prompt", "system", "file", "tools", "next"),
        *(
            "routes",
            "to",
            "when",
            "output",
            "outputs",
            "inputs",
            "schema",
            "properties",
            "with",
            "steps",
            "a",
        ),
        *("$ref", "default", "reducer", "choices", "question", "actor"),
    ]
)
values = st.recursive(
    leaves, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=5))
)
graphs = st.fixed_dictionaries(
    {
        "name": st.just("a/b"),
        "type": st.sampled_from(["llm", "graph", "tool", "x"]),
        "nodes": st.dictionaries(words, st.dictionaries(keys, values, max_size=5), max_size=4),
    },
    optional={"state": st.dictionaries(words, values, max_size=3), "entry": words, "prompt": values},
)


def attempt(content: str | bytes) -> None:
    with suppress(InvalidActor):
        load_actor(content, "file.yaml", tools=["a"], actors=Others(), prompts=lambda relative: b"${x}")


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200)))
def test_any_text_is_loaded_or_refused(content: str | bytes) -> None:
    attempt(content)


@given(st.one_of(values, graphs))
def test_any_yaml_is_loaded_or_refused(value: object) -> None:
    attempt(json.dumps(value))
