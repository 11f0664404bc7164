"""From the text of an action to the action, or to a list of everything that is wrong with it.

The shape is checked by pydantic, the meaning (references, tools, defaults, names) here; both look at the
whole file, so that nobody mends one mistake to be told of the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from cleveragents.domain.action import Action, Budget, Setup, Step, is_action_name, step_problems
from cleveragents.domain.action_arguments import Argument, ArgumentType
from cleveragents.domain.check import Check
from cleveragents.domain.json_value import JsonValue, freeze
from cleveragents.domain.policy import PROFILES
from cleveragents.domain.template import Place
from cleveragents.errors import InvalidAction
from cleveragents.infrastructure.actions.yaml_document import read_yaml

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from cleveragents.infrastructure.actions.models import ActionModel

__all__ = ["load_action"]

_Problem = tuple[Place, str]

_EXAMPLES = {
    "name": "name: team/format",
    "execute": "execute: {steps: [{tool: command, with: {argv: [ls]}}]}",
    "type": "type: string",
    "tool": "tool: command",
    "command": 'command: "pytest -q"',
}

# pydantic's words are for programmers.
_PLAIN_WORDS = {
    "string_type": "should be text; put it in quotes",
    "string_too_short": "is empty",
    "too_short": "is empty",
    "list_type": "should be a list: [a, b]",
    "dict_type": "should be a mapping: key: value",
    "model_type": "should be a mapping: key: value",
    "bool_type": "should be true or false",
    "int_type": "should be a whole number, without quotes",
    "float_type": "should be a number, without quotes",
}


def load_action(content: str | bytes, source: str, *, tools: Collection[str] | None = None) -> Action:
    """The action of a YAML text. `source` names it in errors; `tools` are the tools that exist, if known.

    `InvalidAction` holds every mistake, in the order of the lines.
    """
    raw = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    document = read_yaml(raw, source)
    data = document.data
    if not isinstance(data, Mapping):
        raise InvalidAction(source, ("it is not a mapping; it begins with `name: namespace/name`",))
    model, problems = _validated(data)
    problems += _meaning(data, tools)
    if problems or model is None:
        lines = sorted({(document.line(place), problem) for place, problem in problems})
        raise InvalidAction(source, tuple(f"line {line}: {problem}" for line, problem in lines))
    return _action_of(model, raw.decode("utf-8-sig"))


def _validated(data: Mapping[str, JsonValue]) -> tuple[ActionModel | None, list[_Problem]]:
    from pydantic import ValidationError

    from cleveragents.infrastructure.actions.models import ActionModel

    try:
        return ActionModel.model_validate(_plain(data)), []
    except ValidationError as error:
        return None, [_described(details) for details in error.errors(include_url=False)]


def _plain(value: JsonValue) -> object:
    # Strict models take lists and dictionaries, not what resembles them.
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _described(details: ErrorDetails) -> _Problem:
    from cleveragents.infrastructure.actions.models import keys_at

    place: Place = tuple(details["loc"])
    key = str(place[-1])
    if details["type"] == "extra_forbidden":
        known = keys_at(place[:-1])
        near = get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        return place, f"unknown key {key!r}; {hint}"
    if details["type"] == "missing":
        example = "name: tests" if place[0] == "checks" and key == "name" else _EXAMPLES[key]
        return place, f"{key!r} is missing; for example: {example}"
    what = f"{key!r}" if isinstance(place[-1], str) else f"entry {place[-1] + 1} of {place[-2]!r}"
    said = _PLAIN_WORDS.get(details["type"]) or details["msg"].replace("Input should", "should", 1)
    return place, f"{what} {said}"


def _meaning(data: Mapping[str, JsonValue], tools: Collection[str] | None) -> list[_Problem]:
    """What the shape does not say. The shape may be wrong as well, so nothing is taken for granted."""
    arguments = list(_arguments(data))
    return [
        *_name_problems(data),
        *_argument_problems(data),
        *_execute_problems(data, arguments, tools),
        *_check_problems(data),
        *_sandbox_problems(data),
    ]


def _name_problems(data: Mapping[str, JsonValue]) -> Iterator[_Problem]:
    name = data.get("name")
    if isinstance(name, str) and not is_action_name(name):
        yield (
            ("name",),
            f"{name[:60]!r} is no name; write namespace/name in small letters, digits and hyphens",
        )
    chosen = data.get("profile")
    if isinstance(chosen, str) and chosen not in PROFILES:
        near = get_close_matches(chosen, list(PROFILES), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(PROFILES)}"
        yield ("profile",), f"there is no profile {chosen!r}; {hint}"


def _arguments(data: Mapping[str, JsonValue]) -> Iterator[Argument]:
    """The arguments as far as they can be understood, so that references to them count as known."""
    for name, item in _mapping(data.get("arguments")).items():
        kind = _mapping(item).get("type")
        known = kind in list(ArgumentType)
        yield Argument(name, ArgumentType(kind) if known else ArgumentType.STRING)


def _argument_problems(data: Mapping[str, JsonValue]) -> Iterator[_Problem]:
    rest: list[str] = []
    for name, item in _mapping(data.get("arguments")).items():
        place: Place = ("arguments", name)
        if not (name.isascii() and name.isidentifier() and name.islower()):
            yield place, f"{name[:60]!r} is no argument's name; use small letters, digits and underscores"
        fields = _mapping(item)
        kind = fields.get("type")
        if fields.get("rest") is True:
            rest.append(name)
            if kind != ArgumentType.LIST:
                yield (*place, "rest"), f"{name!r} takes the rest, so its type has to be list"
        if "default" in fields and kind in list(ArgumentType):
            yield from _default_problems(Argument(name, ArgumentType(kind)), fields["default"], place)
    if len(rest) > 1:
        yield ("arguments", rest[1], "rest"), f"only one argument takes the rest, and {rest[0]!r} does"


def _default_problems(argument: Argument, default: JsonValue, place: Place) -> Iterator[_Problem]:
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
) -> Iterator[_Problem]:
    execute = data.get("execute")
    if isinstance(execute, Mapping) and ("steps" in execute) == ("actor" in execute):
        yield ("execute",), "it has either steps or an actor; say one of them"
    for number, item in enumerate(_items(_mapping(execute).get("steps"))):
        step = _mapping(item)
        place: Place = ("execute", "steps", number)
        tool = step.get("tool")
        if tools is not None and isinstance(tool, str) and tool not in tools:
            near = get_close_matches(tool, list(tools), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(tools))}"
            yield (*place, "tool"), f"there is no tool {tool[:60]!r}; {hint}"
        shell = step.get("shell") is True
        if shell and tool is not None and tool != "command":
            yield (*place, "shell"), "only the tool 'command' has a shell"
        for within, problem in step_problems(_mapping(step.get("with")), shell, arguments):
            yield (*place, "with", *within), problem


def _check_problems(data: Mapping[str, JsonValue]) -> Iterator[_Problem]:
    seen: set[JsonValue] = set()
    for number, item in enumerate(_items(data.get("checks"))):
        name = _mapping(item).get("name")
        if isinstance(name, str) and name in seen:
            yield ("checks", number, "name"), f"two checks are called {name[:60]!r}; rename one"
        seen.add(name if isinstance(name, str) else None)


def _sandbox_problems(data: Mapping[str, JsonValue]) -> Iterator[_Problem]:
    setup = _mapping(_mapping(data.get("sandbox")).get("setup"))
    inside = Argument("path", ArgumentType.PATH)
    for key in ("key", "paths"):
        for number, path in enumerate(_items(setup.get(key))):
            if not isinstance(path, str):
                continue
            try:
                inside.fitted(path)
            except ValueError as error:
                yield ("sandbox", "setup", key, number), str(error)


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, Mapping) else {}


def _items(value: JsonValue) -> tuple[JsonValue, ...]:
    return value if isinstance(value, tuple) else ()


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
