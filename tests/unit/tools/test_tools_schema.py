"""The schema of a tool's arguments for a model, and the answer to an unknown argument."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from cleveragents.core.errors import InvalidToolCall
from cleveragents.core.json_value import thaw
from cleveragents.core.policy import Capability
from cleveragents.tools.ports import Workplace
from cleveragents.tools.typed_tool import Arguments, Result, TypedTool


class Leaf(Arguments):
    title: str = Field(description="what it is called")


class Other(Arguments):
    colour: str


class Branch(Arguments):
    leaf: Leaf = Field(description="its own leaf")
    branches: tuple[Branch, ...] = ()


class Nothing(Result):
    pass


class Flat(Arguments):
    leaves: list[Leaf]
    either: tuple[Leaf | Other, ...] = ()


class FlatTool(TypedTool[Flat, Nothing]):
    name = "flat"
    description = "Takes leaves."
    capability = Capability.READ
    arguments = Flat
    result = Nothing

    def run(self, arguments: Flat, workplace: Workplace) -> Nothing:
        raise AssertionError("no call in here is right")


class TreeTool(TypedTool[Branch, Nothing]):
    name = "tree"
    description = "Takes a branch."
    capability = Capability.READ
    arguments = Branch
    result = Nothing

    def run(self, arguments: Branch, workplace: Workplace) -> Nothing:
        raise AssertionError("must not be called")


LEAF = {
    "type": "object",
    "additionalProperties": False,
    "required": ["title"],
    "properties": {"title": {"type": "string", "description": "what it is called"}},
}


def test_nested_arguments_are_described_in_place() -> None:
    schema: Any = thaw(FlatTool().spec.input_schema)
    assert "$defs" not in schema
    assert schema["properties"]["leaves"] == {"type": "array", "items": LEAF}


def test_a_recursive_model_keeps_its_reference() -> None:
    schema: Any = thaw(TreeTool().spec.input_schema)
    assert schema["properties"]["leaf"] == LEAF | {"description": "its own leaf"}
    assert schema["properties"]["branches"]["items"] == {"$ref": "#/$defs/Branch"}
    branch = schema["$defs"]["Branch"]
    assert branch["properties"]["branches"]["items"] == {"$ref": "#/$defs/Branch"}
    assert schema["$defs"]["Leaf"] == LEAF


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"leafs": []}, "unknown argument 'leafs'; did you mean 'leaves'?"),
        (
            {"leaves": [{"title": "x", "titel": "x"}]},
            "unknown argument 'leaves.0.titel'; did you mean 'title'?",
        ),
        ({"leaves": [{"title": "x", "zzz": "x"}]}, "unknown argument 'leaves.0.zzz'; expected title"),
        (
            {"leaves": [], "either": [{"zzz": 1}]},
            "unknown argument 'either.0.Leaf.zzz'; expected leaves, either",
        ),
    ],
)
def test_an_unknown_argument_lists_the_expected_ones(given: dict[str, Any], answer: str) -> None:
    with pytest.raises(InvalidToolCall) as refused:
        FlatTool()._parse(given)
    assert answer in str(refused.value)
