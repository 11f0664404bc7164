"""Actions: templates of plans. What is wanted, by which steps or actors, and when it counts as done.

An action whose phases are plain tool steps needs no model. `render` is pure: the same arguments give the same
steps, in any process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cleveragents.core.actions.arguments import Argument, ArgumentType, bound, parsed
from cleveragents.core.actions.check import Check
from cleveragents.core.errors import InvalidAction
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.text.template import Place, filled, shell_argv, template_problems

__all__ = ["BUILTIN_NAMESPACE", "Action", "Budget", "Setup", "Step", "is_action_name", "step_problems"]

BUILTIN_NAMESPACE = "builtin"

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?/[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


def is_action_name(name: str) -> bool:
    """Whether it is `namespace/name`, of small letters, digits and hyphens."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call; as part of an action a template, as `render` returns it ready to be made.

    `expect_exit` are the exit codes with which a command counts as done. With `shell`, the argument `command`
    is a script; a rendered step has `argv` instead. `continue_on_failure`: the steps after it run anyway.
    """

    tool: str
    arguments: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    name: str | None = None
    continue_on_failure: bool = False
    expect_exit: tuple[int, ...] = (0,)
    shell: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", FrozenObject(self.arguments))

    def rendered(self, values: Mapping[str, JsonValue]) -> Step:
        """The step with its references filled in."""
        templates = dict(self.arguments)
        script = templates.pop("command") if self.shell else None
        ready = {key: filled(item, values) for key, item in templates.items()}
        if self.shell:
            ready["argv"] = shell_argv(str(script), values)
        return replace(self, arguments=ready, shell=False)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a plan of this action may spend; None is no bound of the action's own."""

    seconds: float | None = None
    steps: int | None = None
    tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """How a sandbox is furnished before it is used: a command, through the shell.

    The `paths` it makes are kept and given to other sandboxes whose `key` files have the same content.
    """

    command: str
    key: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """An action, complete and consistent: `InvalidAction` when a step names an argument that does not exist.

    `execute_actor` and `steps` exclude each other. `profile` can only tighten what the user chose.
    `document` is the text it was read from: a plan that keeps it is not changed by who changes the action.
    """

    name: str
    description: str = ""
    arguments: tuple[Argument, ...] = ()
    strategize_actor: str | None = None
    execute_actor: str | None = None
    review_actor: str | None = None
    steps: tuple[Step, ...] = ()
    checks: tuple[Check, ...] = ()
    invariants: tuple[str, ...] = ()
    definition_of_done: str = ""
    profile: str | None = None
    budget: Budget = Budget()
    setup: Setup | None = None
    include: tuple[str, ...] = ()
    document: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        problems = [
            f"step {number}: {problem}"
            for number, step in enumerate(self.steps, start=1)
            for _, problem in step_problems(step.arguments, step.shell, self.arguments)
        ]
        if problems:  # guard: what was accepted can be rendered
            raise InvalidAction(self.name, tuple(problems))

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    def parse(self, pairs: Sequence[str], rest: Sequence[str] = ()) -> FrozenObject:
        """The values of a command line: `name=value` each, and what stood after `--`. `InvalidArguments`."""
        return parsed(self.name, self.arguments, pairs, rest)

    def bind(self, arguments: Mapping[str, JsonValue]) -> FrozenObject:
        """A value for every argument, defaults included. `InvalidArguments`."""
        return bound(self.name, self.arguments, arguments)

    def render(self, arguments: Mapping[str, JsonValue]) -> tuple[Step, ...]:
        """The tool calls to be made with these arguments. `InvalidArguments`."""
        values = self.bind(arguments)
        return tuple(step.rendered(values) for step in self.steps)


def step_problems(
    template: Mapping[str, JsonValue], shell: bool, arguments: Sequence[Argument]
) -> list[tuple[Place, str]]:
    """What is wrong with what a step gives to its tool, and where in it."""
    names = [argument.name for argument in arguments]
    lists = [argument.name for argument in arguments if argument.type is ArgumentType.LIST]
    problems: list[tuple[Place, str]] = []
    if shell and not isinstance(template.get("command"), str):
        problems.append(((), "a shell step needs its script as text: with: {command: …}"))
    if shell and "argv" in template:
        problems.append((("argv",), "a shell step has a script, `command`, and no argv"))
    for key, item in template.items():
        script = shell and key == "command"
        found = template_problems(item, names, lists, script=script)
        problems += [((key, *place), problem) for place, problem in found]
    return problems
