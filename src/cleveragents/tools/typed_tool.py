"""A tool as its author writes it: a model of its arguments, a model of its result, and what it does.

The schemas are made from the models, the arguments are checked by them, and a wrong call is answered with
what was wrong, so that whoever made it can mend it in one step.
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

# A model that gets everything wrong needs the first few mistakes, not all.
_PROBLEMS_SHOWN = 4


class Arguments(BaseModel):
    """What a tool takes: exactly these names, exactly these types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Result(BaseModel):
    """What a tool gives."""

    model_config = ConfigDict(extra="forbid", frozen=True)


A = TypeVar("A", bound=Arguments)
R = TypeVar("R", bound=Result)


class TypedTool(ABC, Generic[A, R]):
    """`Tool` over two models. A subclass names them and says in `run` what is done."""

    name: ClassVar[str]
    description: ClassVar[str]
    capability: ClassVar[Capability]
    writes: ClassVar[bool] = False
    runs_commands: ClassVar[bool] = False
    arguments: ClassVar[type[Arguments]]
    result: ClassVar[type[Result]]

    @abstractmethod
    def run(self, arguments: A, workplace: Workplace) -> R:
        """Does it."""

    def needs(self, arguments: A, files: SandboxFiles) -> Capability:
        """What this call needs leave for; `capability`, unless the tool knows better."""
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
        """The arguments that there are where the one at the place is; all, if it cannot be told where."""
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
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            return f"there is no argument {place!r}; {hint}"
        if found["type"] == "missing":
            return f"the argument {place!r} is missing"
        said = str(found["msg"]).removeprefix("Value error, ")
        return f"the argument {place!r} is wrong: {said}" if place else said


@cache
def _schema_of(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> FrozenObject:
    """Made once for each model, because some tools are made anew for every plan."""
    return FrozenObject(_plain(model.model_json_schema(mode=mode)))


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Each argument described where it is: not every model provider follows a reference. And without the
    titles that pydantic makes of the names: they say nothing that the names don't."""
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
        if name in within:  # only a reference can say that something contains its like
            endless.add(name)
            return part
        return plain(models[name] | _without(part, "$ref"), (*within, name))

    found: dict[str, Any] = plain(_without(schema, "$defs"), ())
    return found | ({"$defs": plain(models, tuple(models))} if endless else {})


def _without(part: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != key}
