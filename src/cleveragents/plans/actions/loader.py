"""Loading of actions from YAML, with a list of all mistakes.

Pydantic checks the structure; this module checks references, tools, defaults and names. All mistakes of a
file are reported together. Types are strict: a quoted number is text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

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
from cleveragents.core.actions.model import Action, Budget, Check, Setup, Step, is_action_name, step_problems
from cleveragents.core.errors import InvalidAction
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.policy import PROFILES
from cleveragents.core.text.template import Place

__all__ = ["ActionModel", "ArgumentModel", "StepModel", "keys_at", "load_action"]


_KIND = DocumentKind("action", "name: namespace/name", InvalidAction)
_EXAMPLES = {
    "name": "name: team/format",
    "execute": "execute: {steps: [{tool: command, with: {argv: [ls]}}]}",
    "type": "type: string",
    "tool": "tool: command",
    "command": 'command: "pytest -q"',
}

_Text = Annotated[str, StringConstraints(min_length=1)]
_Seconds = Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)]


def load_action(content: str | bytes, source: str, *, tools: Collection[str] | None = None) -> Action:
    """Return the action of a YAML text. `source` names it in errors; `tools` are the existing tools, if
    known.

    Raises `InvalidAction` with every mistake, in the order of the lines.
    """
    raw = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    document = read_yaml(raw, source, _KIND)
    data = document.data
    if not isinstance(data, Mapping):
        raise InvalidAction(source, (f"not a mapping; an action begins with `{_KIND.begins}`",))

    model, problems = shape_problems(ActionModel, data, Shape(keys_at, _example))
    refuse_problems([*problems, *_meaning(data, tools)], document, source, _KIND)
    assert model is not None  # or the structure had a problem
    return _action_of(model, raw.decode("utf-8-sig"))


def _example(place: Place) -> str:
    return "name: tests" if place[0] == "checks" and place[-1] == "name" else _EXAMPLES[str(place[-1])]


def _meaning(data: Mapping[str, JsonValue], tools: Collection[str] | None) -> list[Problem]:
    """Return the problems that the check of the structure does not find. Accepts files with an invalid
    structure.
    """
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
        yield ("profile",), f"unknown profile {chosen!r}; {did_you_mean(chosen, PROFILES)}"
    for phase in ("strategize", "execute", "review"):
        named = mapping_of(data.get(phase)).get("actor")
        if isinstance(named, str) and is_actor_file(named):  # guard: only a user may run an actor file
            yield (phase, "actor"), f"{named[:60]!r} is a file; use the name of its actor"


def _arguments(data: Mapping[str, JsonValue]) -> Iterator[Argument]:
    """Yield the arguments that are valid, so that references to them can be checked."""
    for name, item in mapping_of(data.get("arguments")).items():
        kind = mapping_of(item).get("type")
        known = kind in list(ArgumentType)
        yield Argument(name, ArgumentType(kind) if known else ArgumentType.STRING)


def _argument_problems(data: Mapping[str, JsonValue]) -> Iterator[Problem]:
    rest: list[str] = []
    for name, item in mapping_of(data.get("arguments")).items():
        place: Place = ("arguments", name)
        if not (name.isascii() and name.isidentifier() and name.islower()):
            yield place, f"{name[:60]!r} is not a valid argument name; use lower-case letters, digits and _"
        fields = mapping_of(item)
        kind = fields.get("type")
        if fields.get("rest") is True:
            rest.append(name)
            if kind != ArgumentType.LIST:
                yield (*place, "rest"), f"{name!r} takes the rest, so its type must be list"
        if "default" in fields and kind in list(ArgumentType):
            yield from _default_problems(Argument(name, ArgumentType(kind)), fields["default"], place)
    if len(rest) > 1:
        yield (
            ("arguments", rest[1], "rest"),
            f"only one argument can take the rest; {rest[0]!r} does",
        )


def _default_problems(argument: Argument, default: JsonValue, place: Place) -> Iterator[Problem]:
    kind = argument.type.spoken
    if default is None:
        yield (*place, "default"), f"the default is empty; give {kind}, or omit `default`"
        return
    try:
        argument.fitted(default)
    except ValueError as error:
        yield (*place, "default"), f"the default must be {kind}: {error}"


def _execute_problems(
    data: Mapping[str, JsonValue], arguments: list[Argument], tools: Collection[str] | None
) -> Iterator[Problem]:
    execute = data.get("execute")
    if isinstance(execute, Mapping) and ("steps" in execute) == ("actor" in execute):
        yield ("execute",), "give either `steps` or `actor`"
    for number, item in enumerate(items_of(mapping_of(execute).get("steps"))):
        step = mapping_of(item)
        place: Place = ("execute", "steps", number)
        tool = step.get("tool")
        if tools is not None and isinstance(tool, str) and tool not in tools:
            yield (*place, "tool"), f"unknown tool {tool[:60]!r}; {did_you_mean(tool, sorted(tools))}"
        shell = step.get("shell") is True
        if shell and tool is not None and tool != "command":
            yield (*place, "shell"), "only the tool 'command' supports `shell`"
        for within, problem in step_problems(mapping_of(step.get("with")), shell, arguments):
            yield (*place, "with", *within), problem


def _check_problems(data: Mapping[str, JsonValue]) -> Iterator[Problem]:
    seen: set[JsonValue] = set()
    for number, item in enumerate(items_of(data.get("checks"))):
        name = mapping_of(item).get("name")
        if isinstance(name, str) and name in seen:
            yield ("checks", number, "name"), f"two checks are named {name[:60]!r}; rename one"
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


class _Model(BaseModel):
    # `defer_build`: only the validator of the whole file is used.
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, defer_build=True
    )


class ArgumentModel(_Model):
    """An argument; optional if it has a default."""

    type: Literal["string", "integer", "number", "boolean", "list", "path"]
    description: str = ""
    default: object = None
    rest: bool = False


class StepModel(_Model):
    """A tool call."""

    tool: _Text
    arguments: dict[str, object] = Field(default_factory=dict, alias="with")
    name: str | None = None
    continue_on_failure: bool = False
    expect_exit: list[Annotated[int, Field(ge=0, le=255)]] = Field(default=[0], min_length=1)
    shell: bool = False


class StrategizeModel(_Model):
    """The strategist. Actions with tool steps have none."""

    actor: _Text | None = None


class ExecuteModel(_Model):
    """Steps, or an actor."""

    steps: list[StepModel] | None = Field(default=None, min_length=1)
    actor: _Text | None = None


class ReviewModel(_Model):
    """The actor that reviews the result. Without this key, no actor does."""

    actor: _Text | None = None


class CheckModel(_Model):
    """A command that verifies the result."""

    name: _Text
    command: _Text
    required: bool = True
    timeout_seconds: _Seconds = 600.0


class BudgetModel(_Model):
    """The limits of a plan."""

    seconds: _Seconds | None = None
    steps: Annotated[int, Field(ge=1)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None
    usd: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None


class SetupModel(_Model):
    """The command that sets up a sandbox."""

    command: _Text
    key: list[_Text] = []
    paths: list[_Text] = []


class SandboxModel(_Model):
    """The setup command and the ignored files of a sandbox."""

    setup: SetupModel | None = None
    include: list[_Text] = []


class ActionModel(_Model):
    """The whole file."""

    name: str
    description: str = ""
    arguments: dict[str, ArgumentModel] = Field(default_factory=dict)
    strategize: StrategizeModel = StrategizeModel()
    execute: ExecuteModel
    review: ReviewModel = ReviewModel()
    checks: list[CheckModel] = []
    invariants: list[_Text] = []
    definition_of_done: str = ""
    profile: str | None = None
    budget: BudgetModel = BudgetModel()
    sandbox: SandboxModel = SandboxModel()


# The keys allowed at each place; `*` is any index or argument name.
_MODELS: dict[tuple[str, ...], type[_Model]] = {
    (): ActionModel,
    ("arguments", "*"): ArgumentModel,
    ("strategize",): StrategizeModel,
    ("execute",): ExecuteModel,
    ("execute", "steps", "*"): StepModel,
    ("review",): ReviewModel,
    ("checks", "*"): CheckModel,
    ("budget",): BudgetModel,
    ("sandbox",): SandboxModel,
    ("sandbox", "setup"): SetupModel,
}


def keys_at(place: Place) -> list[str]:
    """Return the keys that a mapping at this location may have, in the order of the documentation."""
    general = tuple(
        "*" if isinstance(part, int) or (number == 1 and place[0] == "arguments") else part
        for number, part in enumerate(place)
    )
    model = _MODELS[general]
    return [field.alias or name for name, field in model.model_fields.items()]
