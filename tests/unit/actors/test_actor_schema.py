"""The JSON Schema of actor files: equal to the models, and useful to an editor."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from cleveragents.actors.library import builtin_actors
from cleveragents.actors.schema import schema_text, shipped_schema

REMEDY = (
    "the models have changed; write what `schema_text()` of actors/schema.py says to actors/actor.schema.json"
)
GRAPH = """\
name: a/b
type: graph
entry: a
state: {k: {type: list, reducer: append}}
nodes:
  a: {type: llm, prompt: {file: prompts/a.md}, next: [b, c]}
  b: {type: tool, tool: read, with: {path: x}, next: d}
  c: {type: human, question: x, output: k, next: d}
  d: {type: router, routes: [{to: e, when: "k == 1"}, {to: end}]}
  e: {type: subgraph, actor: a/c, inputs: {task: x}, outputs: {k: x}}
"""


def read(text: str) -> dict[str, object]:
    return YAML(typ="safe", pure=True).load(text)


@pytest.fixture(scope="module")
def valid() -> Callable[[Mapping[str, object]], bool]:
    schema = json.loads(shipped_schema())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema).is_valid


def test_the_file_that_is_shipped_is_what_the_models_say() -> None:
    assert shipped_schema() == schema_text(), REMEDY


def test_the_schema_accepts_built_in_actors_and_all_nodes(
    valid: Callable[[Mapping[str, object]], bool],
) -> None:
    assert all(valid(read(actor.document)) for actor in builtin_actors())
    assert valid(read(GRAPH))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("type: graph", "type: grph"),
        ("entry: a\n", ""),
        ("type: llm", "type: lmm"),
        ("prompt:", "promt:"),
        ("{file: prompts/a.md}", "{path: prompts/a.md}"),
        ("[b, c]", "[]"),
        ("next: d", "next: 5"),
        ("type: list", "type: array"),
        ("{to: end}", "{}"),
    ],
)
def test_an_editor_sees_a_mistake(valid: Callable[[Mapping[str, object]], bool], old: str, new: str) -> None:
    assert old in GRAPH
    assert not valid(read(GRAPH.replace(old, new, 1)))
