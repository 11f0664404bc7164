"""From the text of an action to the action, or to a list of everything that is wrong with it.

The shape is checked by pydantic, the meaning (references, tools, defaults, names) here; both look at the
whole file, so that nobody mends one mistake to be told of the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from cleveragents.actors.model.actor import is_actor_file
from cleveragents.config.yaml.document import DocumentKind, read_yaml
from cleveragents.config.yaml.shape import (
    Problem,
    Shape,
    did_you_mean,
    items_of,
    mapping_of,
    name_problem,
    refuse_problems,
    shape_problems,
)
from cleveragents.core.actions.arguments import Argument, ArgumentType
from cleveragents.core.actions.check import Check
from cleveragents.core.actions.model import Action, Budget, Setup, Step, is_action_name, step_problems
from cleveragents.core.errors import InvalidAction
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.policy import PROFILES
from cleveragents.core.text.template import Place

if TYPE_CHECKING:
    from cleveragents.plans.actions.models import ActionModel

__all__ = ["load_action"]

_KIND = DocumentKind("action", "name: namespace/name", InvalidAction)

_EXAMPLES = {
    "name": "name: team/format",
    "execute": "execute: {steps: [{tool: command, with: {argv: [ls]}}]}",
    "type": "type: string",
    "tool": "tool: command",
    "command": 'command: "pytest -q"',
}


def load_action(content: str | bytes, source: str, *, tools: Collection[str] | None = None) -> Action:
    """The action of a YAML text. `source` names it in errors; `tools` are the tools that exist, if known.

    `InvalidAction` holds every mistake, in the order of the lines.
    """
    raw = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    document = read_yaml(raw, source, _KIND)
    data = document.data
    if not isinstance(data, Mapping):
        raise InvalidAction(source, (f"it is not a mapping; it begins with `{_KIND.begins}`",))
    from cleveragents.plans.actions.models import ActionModel, keys_at

    model, problems = shape_problems(ActionModel, data, Shape(keys_at, _example))
    refuse_problems([*problems, *_meaning(data, tools)], document, source, _KIND)
    assert model is not None  # or there was a problem with the shape
    return _action_of(model, raw.decode("utf-8-sig"))


def _example(place: Place) -> str:
    return "name: tests" if place[0] == "checks" and place[-1] == "name" else _EXAMPLES[str(place[-1])]


def _meaning(data: Mapping[str, JsonValue], tools: Collection[str] | None) -> list[Problem]:
    """What the shape does not say. The shape may be wrong as well, so nothing is taken for granted."""
    arguments = list(_arguments(data))
    return [
        *_name_problems(data),
        *_argument_problems(data),
        *_execute_problems(data, arguments, tools),
        *_check_problems(data),
        *_sandbox_problems(data),
    ]


def _name_problems(data: Mapping[str, JsonValue]) -> Iterator[Problem]:
    name = data.get("name")
    if isinstance(name, str) and not is_action_name(name):
        yield ("name",), name_problem(name)
    chosen = data.get("profile")
    if isinstance(chosen, str) and chosen not in PROFILES:
        yield ("profile",), f"there is no profile {chosen!r}; {did_you_mean(chosen, PROFILES)}"
    for phase in ("strategize", "execute", "review"):
        named = mapping_of(data.get(phase)).get("actor")
        if isinstance(named, str) and is_actor_file(named):  # guard: a file is run if its user names it
            yield (phase, "actor"), f"{named[:60]!r} is a file; write the name of the actor in it"


def _arguments(data: Mapping[str, JsonValue]) -> Iterator[Argument]:
    """The arguments as far as they can be understood, so that references to them count as known."""
    for name, item in mapping_of(data.get("arguments")).items():
        kind = mapping_of(item).get("type")
        known = kind in list(ArgumentType)
        yield Argument(name, ArgumentType(kind) if known else ArgumentType.STRING)


def _argument_problems(data: Mapping[str, JsonValue]) -> Iterator[Problem]:
    rest: list[str] = []
    for name, item in mapping_of(data.get("arguments")).items():
        place: Place = ("arguments", name)
        if not (name.isascii() and name.isidentifier() and name.islower()):
            yield place, f"{name[:60]!r} is no argument's name; use small letters, digits and underscores"
        fields = mapping_of(item)
        kind = fields.get("type")
        if fields.get("rest") is True:
            rest.append(name)
            if kind != ArgumentType.LIST:
                yield (*place, "rest"), f"{name!r} takes the rest, so its type has to be list"
        if "default" in fields and kind in list(ArgumentType):
            yield from _default_problems(Argument(name, ArgumentType(kind)), fields["default"], place)
    if len(rest) > 1:
        yield ("arguments", rest[1], "rest"), f"only one argument takes the rest, and {rest[0]!r} does"


def _default_problems(argument: Argument, default: JsonValue, place: Place) -> Iterator[Problem]:
    kind = argument.type.spoken
    if default is None:
        yield (*place, "default"), f"the default is nothing; give {kind}, or leave `default` out"
        return
    try:
        argument.fitted(default)
    except ValueError as error:
        yield (*place, "default"), f"the default should be {kind}: {error}"


def _execute_problems(
    data: Mapping[str, JsonValue], arguments: list[Argument], tools: Collection[str] | None
) -> Iterator[Problem]:
    execute = data.get("execute")
    if isinstance(execute, Mapping) and ("steps" in execute) == ("actor" in execute):
        yield ("execute",), "it has either steps or an actor; say one of them"
    for number, item in enumerate(items_of(mapping_of(execute).get("steps"))):
        step = mapping_of(item)
        place: Place = ("execute", "steps", number)
        tool = step.get("tool")
        if tools is not None and isinstance(tool, str) and tool not in tools:
            yield (*place, "tool"), f"there is no tool {tool[:60]!r}; {did_you_mean(tool, sorted(tools))}"
        shell = step.get("shell") is True
        if shell and tool is not None and tool != "command":
            yield (*place, "shell"), "only the tool 'command' has a shell"
        for within, problem in step_problems(mapping_of(step.get("with")), shell, arguments):
            yield (*place, "with", *within), problem


def _check_problems(data: Mapping[str, JsonValue]) -> Iterator[Problem]:
    seen: set[JsonValue] = set()
    for number, item in enumerate(items_of(data.get("checks"))):
        name = mapping_of(item).get("name")
        if isinstance(name, str) and name in seen:
            yield ("checks", number, "name"), f"two checks are called {name[:60]!r}; rename one"
        seen.add(name if isinstance(name, str) else None)


def _sandbox_problems(data: Mapping[str, JsonValue]) -> Iterator[Problem]:
    setup = mapping_of(mapping_of(data.get("sandbox")).get("setup"))
    inside = Argument("path", ArgumentType.PATH)
    for key in ("key", "paths"):
        for number, path in enumerate(items_of(setup.get(key))):
            if not isinstance(path, str):
                continue
            try:
                inside.fitted(path)
            except ValueError as error:
                yield ("sandbox", "setup", key, number), str(error)


def _action_of(model: ActionModel, document: str) -> Action:
    wanted = model.sandbox.setup
    setup = Setup(wanted.command, tuple(wanted.key), tuple(wanted.paths)) if wanted else None
    return Action(
        name=model.name,
        description=model.description.strip(),
        arguments=tuple(
            Argument(name, ArgumentType(item.type), item.description, freeze(item.default), item.rest)
            for name, item in model.arguments.items()
        ),
        strategize_actor=model.strategize.actor,
        execute_actor=model.execute.actor,
        review_actor=model.review.actor,
        steps=tuple(
            Step(
                item.tool,
                {key: freeze(value) for key, value in item.arguments.items()},
                item.name,
                item.continue_on_failure,
                tuple(item.expect_exit),
                item.shell,
            )
            for item in model.execute.steps or ()
        ),
        checks=tuple(
            Check(item.name, item.command, item.required, item.timeout_seconds) for item in model.checks
        ),
        invariants=tuple(model.invariants),
        definition_of_done=model.definition_of_done.strip(),
        profile=model.profile,
        budget=Budget(**model.budget.model_dump()),
        setup=setup,
        include=tuple(model.sandbox.include),
        document=document,
    )
