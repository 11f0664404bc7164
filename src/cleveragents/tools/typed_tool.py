"""A base class for tools: a model of the arguments, a model of the result, and the code.

The schemas are generated from the models, which also validate the arguments. The error for an invalid call
lists all its mistakes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache, cached_property
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from cleveragents.core.errors import InvalidToolCall, ToolRefused
from cleveragents.core.json_value import FrozenObject, JsonValue, thaw
from cleveragents.core.policy import Capability
from cleveragents.core.tool import ToolSpec
from cleveragents.tools.ports import SandboxFiles, Workplace

__all__ = ["Arguments", "Result", "TypedTool"]

# A model that gets everything wrong needs only the first few mistakes.
_PROBLEMS_SHOWN = 4


class Arguments(BaseModel):
    """The arguments of a tool: exactly these names and types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Result(BaseModel):
    """The result of a tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)


A = TypeVar("A", bound=Arguments)
R = TypeVar("R", bound=Result)


class TypedTool(ABC, Generic[A, R]):
    """A `Tool` with a pydantic model for its arguments and one for its result. A subclass names both and
    implements `run`.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    capability: ClassVar[Capability]
    writes: ClassVar[bool] = False
    runs_commands: ClassVar[bool] = False
    arguments: ClassVar[type[Arguments]]
    result: ClassVar[type[Result]]

    @abstractmethod
    def run(self, arguments: A, workplace: Workplace) -> R:
        """Run the call."""

    def needs(self, arguments: A, files: SandboxFiles) -> Capability:
        """Return the capability that this call needs; by default `capability`."""
        return self.capability

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            name=self.name,
            description=self.description,
            capability=self.capability,
            input_schema=_schema_of(self.arguments, "validation"),
            output_schema=_schema_of(self.result, "serialization"),
            writes=self.writes,
            runs_commands=self.runs_commands,
        )

    def call(self, arguments: Mapping[str, JsonValue], workplace: Workplace) -> JsonValue:
        parsed = self._parse(arguments)
        workplace.stop.raise_if_cancelled()
        try:
            result = self.run(parsed, workplace)
        except ToolRefused as refused:
            raise ToolRefused(self.name, refused.reason) from refused.__cause__
        return cast("JsonValue", result.model_dump(mode="json"))

    def capability_of(self, arguments: Mapping[str, JsonValue], files: SandboxFiles) -> Capability:
        return self.needs(self._parse(arguments), files)

    def _parse(self, arguments: Mapping[str, JsonValue]) -> A:
        try:
            text = json.dumps(thaw(arguments), allow_nan=False)
            return cast("A", self.arguments.model_validate_json(text))
        except ValidationError as error:
            problems = [self._problem(cast("Mapping[str, Any]", found)) for found in error.errors()]
        except (TypeError, ValueError) as error:
            problems = [f"the arguments are not JSON: {error}"]
        more = len(problems) - _PROBLEMS_SHOWN
        shown = "; ".join(problems[:_PROBLEMS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise InvalidToolCall(self.name, shown)

    def _names_beside(self, place: Sequence[str | int]) -> list[str]:
        """Return the valid argument names at the level of `place`; all names if the place is unknown."""
        whole: Any = self.spec.input_schema
        schema = whole
        for step in place[:-1]:
            inside = {} if schema is None else schema
            schema = inside.get("items") if isinstance(step, int) else inside.get("properties", {}).get(step)
        return list((schema or whole).get("properties", whole["properties"]))

    def _problem(self, found: Mapping[str, Any]) -> str:
        place = ".".join(str(step) for step in found["loc"])
        if found["type"] == "extra_forbidden":
            known = self._names_beside(found["loc"])
            near = get_close_matches(str(found["loc"][-1]), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected {', '.join(known)}"
            return f"unknown argument {place!r}; {hint}"
        if found["type"] == "missing":
            return f"the argument {place!r} is missing"
        said = str(found["msg"]).removeprefix("Value error, ")
        return f"invalid argument {place!r}: {said}" if place else said


@cache
def _schema_of(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> FrozenObject:
    """Generate the schema once per model, because some tools are created for every plan."""
    return FrozenObject(_plain(model.model_json_schema(mode=mode)))


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with references resolved and titles removed.

    Not every model provider follows references, and pydantic's titles only repeat the names.
    """
    models: Mapping[str, Any] = schema.get("$defs", {})
    endless: set[str] = set()

    def plain(part: Any, within: tuple[str, ...]) -> Any:
        if isinstance(part, list):
            return [plain(item, within) for item in part]
        if not isinstance(part, dict):
            return part
        reference = part.get("$ref")
        if not isinstance(reference, str):
            shown = _without(part, "title") if isinstance(part.get("title"), str) else part
            return {key: plain(value, within) for key, value in shown.items()}
        name = reference.rpartition("/")[2]
        if name in within:  # a recursive model needs a reference
            endless.add(name)
            return part
        return plain(models[name] | _without(part, "$ref"), (*within, name))

    found: dict[str, Any] = plain(_without(schema, "$defs"), ())
    return found | ({"$defs": plain(models, tuple(models))} if endless else {})


def _without(part: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != key}
