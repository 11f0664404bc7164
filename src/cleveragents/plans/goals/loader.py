"""Loading of goal files from YAML, with a list of all mistakes.

Pydantic checks the structure; this module checks names, dependencies and cycles. The caller checks the
actions and models that goals request; their problems are reported together with the others, by line. Types
are strict: a quoted number is text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from cleveragents.config.yaml.document import DocumentKind, read_yaml
from cleveragents.config.yaml.shape import (
    Problem,
    Shape,
    did_you_mean,
    items_of,
    mapping_of,
    refuse_problems,
    shape_problems,
)
from cleveragents.core.errors import InvalidGoals
from cleveragents.core.json_value import FrozenObject, JsonValue, freeze
from cleveragents.core.text.template import Place
from cleveragents.plans.model.sub_plan import Goals, SubGoal, circle_in

__all__ = ["GoalsModel", "Judge", "SubGoalModel", "keys_at", "load_goals"]


Judge = Callable[[SubGoal], str | None]
"""Returns the problem with the request of a goal, or None."""
_KIND = DocumentKind("list of goals", "goals:", InvalidGoals)
_LONGEST_NAME = 60
_EXAMPLES = {
    "goals": "goals: [{name: docs, goal: Describe the new option}]",
    "name": "name: docs",
}

_Text = Annotated[str, StringConstraints(min_length=1)]


def load_goals(content: bytes, source: str, *, most: int, judge: Judge) -> Goals:
    """Return the goals of a YAML text. `source` names the text in errors; `most` is the maximum number of
    goals.

    Raises `InvalidGoals` with every mistake, in the order of the lines.
    """
    document = read_yaml(content, source, _KIND)
    data = document.data
    if not isinstance(data, Mapping):
        begins = "not a mapping; begin with `goals:`, or write one goal per line into a .txt file"
        raise InvalidGoals(source, (begins,))

    shape = Shape(keys_at, lambda place: _EXAMPLES[str(place[-1])])
    model, problems = shape_problems(GoalsModel, data, shape)
    problems += _meaning(data, most)
    problems += _judged(data, shape, judge)
    refuse_problems(problems, document, source, _KIND)
    assert model is not None  # or the structure had a problem
    return _goals_of(model)


def _judged(data: Mapping[str, JsonValue], shape: Shape, judge: Judge) -> Iterator[Problem]:
    """Yield the problems that `judge` finds in each goal, without regard to its dependencies. Malformed goals
    are skipped.
    """

    for number, item in enumerate(items_of(data.get("goals"))):
        entry = {key: value for key, value in mapping_of(item).items() if key != "needs"}
        place: Place = ("goals", number)
        if any(_entry_problems(entry, place)):
            continue
        model, _ = shape_problems(SubGoalModel, entry, replace(shape, keys_at=lambda _: ()))
        said = None if model is None else judge(_sub_goal(model))
        if said is not None:
            yield place, said


def _meaning(data: Mapping[str, JsonValue], most: int) -> Iterator[Problem]:
    """Yield the problems that the check of the structure does not find. Accepts files with an invalid
    structure.
    """
    entries = [mapping_of(item) for item in items_of(data.get("goals"))]
    if len(entries) > most:
        remedy = "remove some, or raise the setting plan.max_fan_out"
        yield ("goals",), f"{len(entries):,} goals exceed the limit of {most:,}; {remedy}"
    for number, entry in enumerate(entries):
        yield from _entry_problems(entry, ("goals", number))
    yield from _name_problems(entries)
    yield from _need_problems(entries)


def _entry_problems(entry: Mapping[str, JsonValue], place: Place) -> Iterator[Problem]:
    if "goal" in entry and "action" in entry:
        yield (*place, "action"), "give either `goal` or `action`, not both"
    if entry and "goal" not in entry and "action" not in entry:
        yield place, "`goal` or `action` is missing; for example: goal: Describe the new option"
    if "arguments" in entry and "action" not in entry:
        yield (*place, "arguments"), "`arguments` need an `action`; name one, or describe the work in `goal`"
    for key in ("goal", "name"):
        value = entry.get(key)
        if isinstance(value, str) and value and not value.strip():
            yield (*place, key), f"{key!r} is empty"
    name = entry.get("name")
    if isinstance(name, str) and (len(name) > _LONGEST_NAME or "\n" in name.strip()):
        yield (
            (*place, "name"),
            f"a name is one line of at most {_LONGEST_NAME} characters; put the rest into `goal`",
        )


def _name_problems(entries: list[Mapping[str, JsonValue]]) -> Iterator[Problem]:
    names = [entry.get("name") for entry in entries]
    for name, times in Counter(name for name in names if isinstance(name, str)).items():
        if times > 1:
            second = [number for number, other in enumerate(names) if other == name][1]
            yield ("goals", second, "name"), f"two goals are named {name[:_LONGEST_NAME]!r}; rename one"


def _need_problems(entries: list[Mapping[str, JsonValue]]) -> Iterator[Problem]:
    names = [name for entry in entries if isinstance(name := entry.get("name"), str)]
    needs: dict[str, list[str]] = {}
    for number, entry in enumerate(entries):
        own = entry.get("name")
        said = [need for need in items_of(entry.get("needs")) if isinstance(need, str)]
        for position, need in enumerate(said):
            if need not in names:
                others = [name for name in names if name != own]
                hint = did_you_mean(need, others) if others else "the file has no other goal"
                yield (
                    ("goals", number, "needs", position),
                    f"unknown goal {need[:_LONGEST_NAME]!r}; {hint}",
                )
        if isinstance(own, str):
            needs[own] = said
    while circle := circle_in(needs):
        first = next(number for number, entry in enumerate(entries) if entry.get("name") == circle[0])
        told = " needs ".join(circle)
        yield ("goals", first, "needs"), f"{told}: a cycle; remove one of these `needs`"
        needs = {name: said for name, said in needs.items() if name not in circle}


def _goals_of(model: GoalsModel) -> Goals:
    return Goals(
        goals=tuple(_sub_goal(item) for item in model.goals),
        goal=(model.goal or "").strip(),
        max_parallel=model.max_parallel,
        fail_fast=model.fail_fast,
        checks=tuple(model.checks),
        invariants=tuple(model.invariants),
    )


def _sub_goal(item: SubGoalModel) -> SubGoal:
    arguments = freeze(item.arguments)
    assert isinstance(arguments, FrozenObject)
    return SubGoal(
        name=item.name,
        goal=(item.goal or "").strip(),
        action=item.action,
        arguments=arguments,
        needs=tuple(dict.fromkeys(item.needs)),
        actor=item.actor,
        model=item.model,
        checks=tuple(item.checks),
        invariants=tuple(item.invariants),
    )


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class SubGoalModel(_Model):
    """One goal."""

    name: _Text
    goal: _Text | None = None
    action: _Text | None = None
    arguments: dict[str, object] = Field(default_factory=dict)
    needs: list[_Text] = []
    actor: _Text | None = None
    model: _Text | None = None
    checks: list[_Text] = []
    invariants: list[_Text] = []


class GoalsModel(_Model):
    """The whole file."""

    goal: _Text | None = None
    goals: list[SubGoalModel] = Field(min_length=1)
    max_parallel: Annotated[int, Field(ge=1, le=64)] | None = None
    fail_fast: bool = False
    checks: list[_Text] = []
    invariants: list[_Text] = []


def keys_at(place: Place) -> list[str]:
    """Return the keys that a mapping at this location may have, in the order of the documentation."""
    model: type[_Model] = GoalsModel if not place else SubGoalModel
    return list(model.model_fields)
