"""`agents actor`: what it lists, shows, checks and draws."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import asdict
from rich.console import Console

from cleveragents.actors.diagram import edges, mermaid, node_summary, node_type, tree
from cleveragents.actors.model.actor import (
    END,
    Actor,
    HumanNode,
    LlmNode,
    Route,
    RouterNode,
    SubgraphNode,
    ToolNode,
)
from cleveragents.actors.schema import schema_text
from tests.cli_bench import Agents, command_line, use_home

ONE = """\
name: team/one
type: graph
description: |
  Asks first.
  And then works.
model: openai/large
limits: {steps: 9}
state:
  answer: {description: what was said}
entry: ask
nodes:
  ask: {type: human, question: "Really?", output: answer, next: judge}
  judge:
    type: router
    routes:
      - {when: "answer == 'yes'", to: work}
      - {to: end}
  work: {type: subgraph, actor: team/two, outputs: {answer: done}}
"""
TWO = """\
name: team/two
type: llm
prompt: {file: prompts/two.md}
tools: [read]
output: done
state: {done: {}}
"""


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    """In a repository with two actors that it does not bring along, but has lying there."""
    use_home(monkeypatch, tmp_path / "home", tmp_path / "state")
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "prompts").mkdir()
    (root / "prompts" / "two.md").write_text("Do ${task}.")
    (root / "one.yaml").write_text(ONE)
    (root / "two.yaml").write_text(TWO)
    monkeypatch.chdir(root)
    with command_line(monkeypatch, capfd) as run:
        yield run


def test_actors_are_listed_with_invalid_ones(agents: Agents, tmp_path: Path) -> None:
    mine = tmp_path / "home" / ".config" / "cleveragents" / "actors"
    mine.mkdir(parents=True)
    (mine / "bad.yaml").write_text("name: me/bad\n")
    (mine / "one.yaml").write_text(ONE)
    listed = agents("actor", "list")
    assert listed.code == 0
    assert "bad.yaml: line 1: 'type' is missing" in listed.err
    rows = json.loads(agents("actor", "list", "--format", "json").out)
    assert [(row["name"], row["origin"], row["description"]) for row in rows[-2:]] == [
        ("me/bad", "user", ""),
        ("team/one", "user", "Asks first."),
    ]
    assert {row["origin"] for row in rows[:-2]} == {"builtin"}
    assert rows[-2]["problem"] == "line 1: 'type' is missing; for example: type: llm"


def test_an_actor_is_shown_by_name_or_by_file(agents: Agents) -> None:
    shown = agents("actor", "show", "builtin/strategist").out
    for line in ("read-only    yes", "max steps    60", "think  llm   end", "decisions  list    replace"):
        assert line in shown
    text = agents("actor", "show", "two.yaml").out
    assert "done  string  replace" in text
    assert "read-only    no" in text


def test_programs_get_the_whole_actor(agents: Agents) -> None:
    whole = json.loads(agents("actor", "show", "builtin/executor", "--format", "json").out)
    (node,) = whole["nodes"]
    assert (node["type"], node["output"], node["next"]) == ("llm", "report", ["end"])
    assert whole["limits"] == {"steps": 200, "tokens": None, "usd": None, "seconds": None}
    (key,) = whole["state"]
    assert key["name"] == "report"


def test_files_that_name_each_other_are_checked_together(agents: Agents) -> None:
    alone = agents("actor", "validate", "one.yaml")
    assert alone.code == 2
    assert alone.err == ("error: one.yaml is not a valid actor\n  line 18: there is no actor 'team/two'\n")
    both = agents("actor", "validate", "one.yaml", "two.yaml")
    assert (both.code, both.err) == (0, "")
    assert both.out == "file      valid  name\none.yaml  yes    team/one\ntwo.yaml  yes    team/two\n"
    Path("two.yaml").write_text(TWO.replace("done", "dun"))
    (problem,) = json.loads(agents("actor", "validate", "one.yaml", "two.yaml", "--format", "json").out)[0][
        "problems"
    ]
    assert problem.startswith("line 18: team/two has no key 'done' in its state")


def test_actors_that_run_each_other_are_a_circle(agents: Agents) -> None:
    text = "name: team/two\ntype: graph\nentry: a\nnodes: {a: {type: subgraph, actor: team/one}}\n"
    Path("two.yaml").write_text(text)
    Path("one.yaml").write_text(ONE.replace(", outputs: {answer: done}", ""))
    ended = agents("actor", "validate", "one.yaml", "two.yaml")
    assert ended.code == 2
    assert "line 18: the actor would run itself in a loop: team/one → team/two → team/one; name" in ended.err
    assert "line 4: the actor would run itself in a loop: team/two → team/one → team/two; name" in ended.err


def test_every_mistake_of_every_file_is_listed(agents: Agents) -> None:
    Path("one.yaml").write_text("name: a/b\ntype: llm\n")
    Path("two.yaml").write_text("name: X\n")
    ended = agents("actor", "validate", "one.yaml", "two.yaml", "one.yaml")
    assert ended.code == 2
    assert ended.err.count("error: one.yaml is not a valid actor\n  line 1: 'prompt' is missing") == 2
    assert "  line 1: 'X' is not a valid name; write namespace/name" in ended.err
    assert "  line 1: 'type' is missing" in ended.err
    rows = json.loads(agents("actor", "validate", "one.yaml", "two.yaml", "--format", "json").out)
    assert [(row["file"], row["valid"], len(row["problems"])) for row in rows] == [
        ("one.yaml", False, 1),
        ("two.yaml", False, 2),
    ]


def test_a_missing_file_or_actor_is_refused_with_its_reason(agents: Agents) -> None:
    assert "is not a file; name a YAML file" in agents("actor", "validate", "none.yaml").err
    nobody = agents("actor", "graph", "builtin/exector")
    assert (nobody.code, nobody.out) == (2, "")
    assert "did you mean builtin/executor?" in nobody.err
    Path("two.yaml").write_text("name: team/two\ntype: llm\n")
    single = agents("actor", "show", "two.yaml")
    assert (single.code, single.out) == (2, "")
    assert "error: two.yaml is not a valid actor: line 1: 'prompt' is missing" in single.err
    Path("two.yaml").write_text("name: team/two\ntype: llm\nx: 1\n")
    several = agents("actor", "graph", "two.yaml")
    assert several.code == 2
    assert several.err.startswith("error: two.yaml is not a valid actor\n  line 1: 'prompt' is missing")


def test_a_graph_is_drawn_as_a_tree_as_mermaid_and_for_programs(agents: Agents) -> None:
    Path("one.yaml").write_text(ONE.replace("team/two, outputs: {answer: done}", "builtin/executor"))
    drawn = agents("actor", "graph", "one.yaml")
    assert drawn.code == 0
    assert drawn.out == (
        "team/one\n"
        "└── ask  human: Really?\n"
        "    └── judge  router\n"
        "        ├── answer == 'yes': work  subgraph builtin/executor\n"
        "        │   └── end\n"
        "        └── otherwise: end\n"
    )
    text = agents("actor", "graph", "one.yaml", "--mermaid").out
    facts = json.loads(agents("actor", "graph", "one.yaml", "--format", "json").out)
    assert facts["mermaid"] == text
    assert text.startswith("flowchart TD\n")
    assert facts["entry"] == "ask"
    assert facts["nodes"][1] == {"name": "judge", "type": "router"}
    assert {"from": "judge", "to": "work", "when": "answer == 'yes'"} in facts["edges"]


def test_the_schema_is_printed_as_it_is(agents: Agents) -> None:
    assert agents("actor", "schema").out == schema_text()


# ── Drawings ──────────────────────────────────────────────────────────────────────────────────────


def drawn_tree(actor: Actor) -> str:
    file = StringIO()
    what = {node.name: node_summary(node_type(node), asdict(node)) for node in actor.nodes}
    Console(file=file, width=200).print(tree(actor.name, actor.entry, edges(actor), what))
    return file.getvalue()


def test_every_node_of_a_loop_is_drawn_once_and_named_again() -> None:
    work = LlmNode(name="work", prompt="x", model="openai/large", next=("judge",))
    judge = RouterNode(name="judge", routes=(Route("work", "task == 'x'"), Route(END)))
    looping = Actor(name="a/b", entry="work", nodes=(work, judge))
    assert drawn_tree(looping) == (
        "a/b\n"
        "└── work  llm (openai/large)\n"
        "    └── judge  router\n"
        "        ├── task == 'x': work (see above)\n"
        "        └── otherwise: end\n"
    )
    assert list(edges(looping)) == [
        ("work", "judge", ""),
        ("judge", "work", "task == 'x'"),
        ("judge", "end", "otherwise"),
    ]


def test_nothing_in_a_label_ends_it_or_reaches_the_terminal() -> None:
    nodes = (
        HumanNode(name="end-of-it", question='"]; click n1 "x" <b>#\x1b[2J\n' + "long " * 30, output="x"),
        ToolNode(name="graph", tool="a\\b"),
        SubgraphNode(name="subgraph", actor="x"),
    )
    hostile = Actor(name="a/b", entry="end-of-it", nodes=nodes)
    text = mermaid(hostile)
    label = text.splitlines()[2]
    assert label.startswith(
        '    n1[/"end-of-it<br/>human: #quot;]; click n1 #quot;x#quot; #lt;b#gt;#35; [2J '
    )
    assert label.endswith('…"/]')
    assert label.count('"') == 2
    assert "\x1b" not in text + drawn_tree(hostile)
    assert '    n2["graph<br/>tool a#92;b"]' in text
    assert '    n3[["subgraph<br/>subgraph x"]]' in text
    assert "    begin --> n1\n    n1 --> stop\n" in text
