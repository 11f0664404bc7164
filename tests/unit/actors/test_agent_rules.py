"""Nodes for external agents in YAML: their conversion and their mistakes."""

from __future__ import annotations

import pytest
from msgspec.structs import asdict

from cleveragents.actors.diagram import edges, mermaid, node_summary, node_type, tree
from cleveragents.actors.loader import load_actor
from cleveragents.actors.model.actor import AGENT_PROCESSES, AGENT_SECONDS, AcpNode, CommandNode
from cleveragents.core.errors import InvalidActor

SHORT = """
name: team/other
type: {type}
argv: [agent, --print]
prompt: "${{task}}"
"""
WHOLE = """
name: team/other
type: graph
entry: work
state: {report: {type: string}}
nodes:
  work:
    type: command
    argv: [agent, --file, "{prompt_file}"]
    prompt: "${task}"
    prompt_by: file
    variables: {NO_COLOR: "1"}
    environment: [AGENT_KEY]
    home: [.agent/settings.json]
    network: true
    seconds: 60
    processes: 5
    expect_exit: [0, 3]
    output: report
    install: buy one
    next: talk
  talk: {type: acp, argv: [agent, acp], prompt: "${report}", output: report}
"""


def problems_of(text: str) -> str:
    with pytest.raises(InvalidActor) as refused:
        load_actor(text, "x.yaml")
    return "\n".join(refused.value.problems)


def command(*lines: str) -> str:
    return "\n".join(("name: team/other", "type: command", *lines))


@pytest.mark.parametrize(("kind", "node"), [("command", CommandNode), ("acp", AcpNode)])
def test_the_short_form_is_a_graph_of_one_node(kind: str, node: type) -> None:
    actor = load_actor(SHORT.format(type=kind), "x.yaml")
    assert actor.nodes == (node(name="work", argv=("agent", "--print"), prompt="${task}"),)
    assert (actor.nodes[0].seconds, actor.nodes[0].processes) == (AGENT_SECONDS, AGENT_PROCESSES)
    assert node_type(actor.nodes[0]) == kind


def test_every_key_arrives_at_the_node() -> None:
    actor = load_actor(WHOLE, "x.yaml")
    assert actor.nodes == (
        CommandNode(
            name="work",
            argv=("agent", "--file", "{prompt_file}"),
            prompt="${task}",
            prompt_by="file",
            variables={"NO_COLOR": "1"},
            environment=("AGENT_KEY",),
            home=(".agent/settings.json",),
            network=True,
            seconds=60,
            processes=5,
            expect_exit=(0, 3),
            output="report",
            install="buy one",
            next=("talk",),
        ),
        AcpNode(name="talk", argv=("agent", "acp"), prompt="${report}", output="report"),
    )


def test_an_agent_node_is_drawn_with_its_program() -> None:
    actor = load_actor(WHOLE, "x.yaml")
    assert 'n1[/"work<br/>command agent"\\]' in mermaid(actor)
    what = {node.name: node_summary(node_type(node), asdict(node)) for node in actor.nodes}
    drawn = tree(actor.name, actor.entry, edges(actor), what)
    assert "acp agent" in str(drawn.children[0].children[0].label)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (("prompt: x",), "'argv' is missing; for example: argv: [claude, --print]"),
        (("argv: []", "prompt: x"), "'argv' is empty"),
        (('argv: [" "]', "prompt: x"), "the program is missing; put its name first"),
        (('argv: ["a\\0b"]', "prompt: x"), "the argument contains a NUL character"),
        (("argv: [a]", "prompt: x", "prompt_by: file"), "needs {prompt_file} in `argv`"),
        (('argv: [a, "{prompt}"]', "prompt: x"), "set `prompt_by: argument`, or remove it"),
        (
            ('argv: [a, "--f={prompt_file}"]', "prompt: x", "prompt_by: argument"),
            "set `prompt_by: file`, or remove it",
        ),
        (("argv: [a]", 'prompt: "${tsak}"'), "did you mean ${task}?"),
        (("argv: [a]", "prompt: x", "environment: [KEY=value]"), "'KEY=value' is not a variable name"),
        (("argv: [a]", "prompt: x", "environment: [K, K]"), "'K' is listed twice; remove one"),
        (("argv: [a]", "prompt: x", "environment: [CLEVERAGENTS_TOKEN]"), "is reserved for CleverAgents"),
        (("argv: [a]", "prompt: x", "variables: {a-b: x}"), "'a-b' is not a variable name"),
        (("argv: [a]", "prompt: x", "home: [/etc/passwd]"), "'/etc/passwd' is not a path below your home"),
        (("argv: [a]", "prompt: x", "home: [../other]"), "'../other' is not a path below your home"),
        (("argv: [a]", "prompt: x", "home: [.]"), "'.' is not a path below your home"),
        (("argv: [a]", "prompt: x", "home: ['~/.a']"), "'~/.a' is not a path below your home"),
        (("argv: [a]", "prompt: x", "home: [.a, .a]"), "'.a' is listed twice; remove one"),
        (("argv: [a]", "prompt: x", "read_only: true"), "the actor is `read_only`, but"),
        (("argv: [a]", "prompt: x", "output: rep"), "the state has no key 'rep'"),
        (("argv: [a]", "prompt: x", "prompt_by: smoke"), "'prompt_by' should be 'stdin'"),
        (("argv: [a]", "prompt: x", "expect_exit: [300]"), "should be less than or equal to 255"),
        (("argv: [a]", "prompt: x", "processes: 0"), "should be greater than or equal to 1"),
    ],
)
def test_every_mistake_is_reported_with_a_remedy(lines: tuple[str, ...], problem: str) -> None:
    assert problem in problems_of(command(*lines))


@pytest.mark.parametrize("where", ["tool: agent", "tools: [agent]"])
def test_the_tool_that_runs_other_agents_cannot_be_named(where: str) -> None:
    kind = "tool" if where.startswith("tool:") else "llm"
    text = f"name: team/x\ntype: {kind}\n{where}\n" + ("prompt: x\n" if kind == "llm" else "")
    assert "'agent' cannot be listed as a tool; use a node of type command or acp" in problems_of(text)
