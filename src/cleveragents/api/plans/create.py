"""Validation of requests for plans.

All problems are found before a plan exists and, where possible, before the database is opened, so that an
invalid request fails at once. Whether git can commit is checked here as well, so that the user does not learn
it only after the plan has run. The apply repeats this check with the repository locked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from cleveragents.access.model.project import new_branch, remote_of
from cleveragents.api.plans.details import arguments_text
from cleveragents.core.errors import ConfigurationError, Remedy, RequestRefused
from cleveragents.core.json_value import JsonValue, freeze, thaw
from cleveragents.core.text.redaction import redact, redact_text
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.sub_plan import GOALS_ACTION

if TYPE_CHECKING:
    from cleveragents.actors.ports import ActorSource
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.config.loader import Configuration
    from cleveragents.config.settings import Settings
    from cleveragents.core.actions.model import Action, Budget, Step
    from cleveragents.plans.ports.plans import PlanDraft

__all__ = [
    "PlanSpec",
    "actor_settings_of",
    "ensure_apply_request",
    "ensure_can_commit",
    "ensure_new_branch",
    "ensure_not_blank",
    "ensure_not_tighter",
    "named_action",
    "requested_plan",
]


_GOAL = "builtin/goal"
_SOLO = "builtin/solo"
_TIMED = "timeout_seconds"
_WAYS = (
    Remedy("run", options={"goal": "Add a --json flag to the export command"}, text="Name a goal"),
    Remedy("run", options={"action": "builtin/command", "command": None}, text="Name an action"),
    Remedy("action.list", text="List the actions"),
)
_LONGEST_GOAL = 100_000
# Our tools that take a regular expression, and their conditions.
_IS_REGEX: Mapping[str, Callable[[Mapping[str, JsonValue]], bool]] = {
    "replace": lambda arguments: arguments.get("regex") is True,
    "grep": lambda arguments: arguments.get("fixed") is not True,
}

_ASKED = "--commit"
_NO_PLAN = "0" * 26


class PlanSpec(Struct, frozen=True):
    """A request: an action with arguments, or a goal."""

    action: str | None
    words: tuple[str, ...]
    pairs: tuple[str, ...]
    checks: tuple[str, ...]
    profile: str | None
    from_head: bool
    include: tuple[str, ...]
    goal: str | None
    commit: bool
    actor: str | None = None
    sent_actor: str | None = None
    """The YAML of an actor for this plan only."""
    model: str | None = None
    limits: BudgetLimits = field(default_factory=BudgetLimits)
    invariants: tuple[str, ...] = ()
    arguments: Mapping[str, JsonValue] | None = None
    """Arguments of the action as values, if they were not typed."""
    parallel: int | None = None


def requested_plan(parts: PlanParts, wanted: PlanSpec, directory: Path, *, remote: bool = False) -> PlanDraft:
    """Return the plan to create, for the repository around that directory. For a `remote`, the directory
    itself is used.

    Raises `RequestRefused` and other errors of an invalid request.
    """
    from cleveragents.core.policy import profile
    from cleveragents.plans.ports.plans import PlanDraft
    from cleveragents.sandboxes.resources import ensure_apart, find_resource

    ensure_not_blank(wanted)
    if wanted.action is None:
        wanted = _goal_wanted(wanted)
        wanted = replace(wanted, actor=wanted.actor or _actor_for(parts, wanted.model or parts.default_model))
    name = profile(wanted.profile or parts.default_profile).name
    root, prefix = (directory, "") if remote else find_resource(directory)
    if wanted.commit:
        ensure_can_commit(root)
    action = named_action(parts, str(wanted.action), root)
    if action.name == GOALS_ACTION:
        run = Remedy("run", options={"file": "goals.yaml"}, text="Run the goals of a file")
        raise RequestRefused(f"{GOALS_ACTION} takes its goals from a file", "action", (run,))
    given = wanted.arguments
    arguments = action.parse(wanted.pairs, wanted.words) if given is None else action.bind(given)
    for step in action.render(arguments):
        _ensure_sound(parts, action, step, root)
    request = freeze(
        {
            "arguments": _kept(action, arguments),
            "checks": list(wanted.checks),
            "profile": name,
            "from_head": wanted.from_head,
            "include": list(wanted.include),
            "directory": prefix,
            "invariants": [redact_text(text) for text in wanted.invariants],
            **({} if wanted.parallel is None else {"max_parallel": wanted.parallel}),
            **actor_settings_of(parts, action, wanted, root),
        }
    )
    if not remote:
        ensure_apart(root, parts.sandboxes.directory)
    said = shlex.join([*wanted.pairs, *wanted.words]) if given is None else arguments_text(freeze(given))
    goal = wanted.goal or ": ".join(filter(None, [action.name.removeprefix("builtin/"), said]))
    assert isinstance(request, Mapping)
    return PlanDraft(goal, action.name, str(root), request)


def ensure_not_blank(wanted: PlanSpec) -> None:
    """Raise `RequestRefused` for empty texts. An empty check would always pass."""
    if not all(text.strip() for text in wanted.checks):
        raise RequestRefused("a check is a command, such as `pytest -q`", "checks")
    if not all(text.strip() for text in wanted.invariants):
        raise RequestRefused("an invariant is a sentence, such as `never touch migrations/`", "invariants")


def ensure_not_tighter(there: Configuration, settings: Settings, directory: Path) -> None:
    """Raise `RequestRefused` if the repository tightens settings that the client did not read."""
    keys = there.tightened_beyond(settings)
    if keys:  # guard: a repository's limits hold for every client
        problem = (
            f"{there.repository_file} sets stricter values for {', '.join(keys)}, which this client does not "
            "apply"
        )
        remedy = f"use connect(directory={str(directory)!r})"
        raise RequestRefused(f"{problem}; {remedy}", "repository")


def _kept(action: Action, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
    """Return the arguments as the plan stores them. Arguments of steps are unchanged, because steps may run
    again. Arguments of actors are without secrets, because a model reads them.
    """
    if action.execute_actor is None:
        return {name: thaw(value) for name, value in arguments.items()}
    return {name: redact(thaw(value)) for name, value in arguments.items()}


def _goal_wanted(wanted: PlanSpec) -> PlanSpec:
    """Return a request without an action as a request for `builtin/goal`. Raises `RequestRefused` if the goal
    is missing or too long.
    """
    goal = " ".join(wanted.words).strip()
    if not goal:
        raise RequestRefused("missing goal: give a goal or an action", remedies=_WAYS)
    if "\0" in goal or len(goal) > _LONGEST_GOAL:
        raise RequestRefused(f"a goal has at most {_LONGEST_GOAL:,} characters", "goal")
    return replace(wanted, action=_GOAL, words=(), pairs=(f"goal={goal}",), goal=wanted.goal or goal)


def _actor_for(parts: PlanParts, model: str) -> str | None:
    """Return the actor for goals of a model that calls no tools by itself; None for other models."""
    from cleveragents.models.ports import ToolCallMode

    if not model:
        return None
    by_itself = parts.actor_parts.models.facts(model).tool_calls in (None, ToolCallMode.NATIVE)
    return None if by_itself else _SOLO


def actor_settings_of(parts: PlanParts, action: Action, wanted: PlanSpec, root: Path) -> dict[str, Any]:
    """Return the actors, models and limits of the plan; empty for fixed steps.

    Raises `RequestRefused`, `ConfigurationError`, and the errors of an actor or model.
    """
    from cleveragents.plans.actors.role_models import ensure_counted

    if wanted.actor is None and action.execute_actor is None:
        if wanted.model:
            raise RequestRefused(f"a model needs an actor, and {action.name} has none", "model")
        if wanted.limits != BudgetLimits():
            timed = any(argument.name == _TIMED for argument in action.arguments)
            bounds = f"; the argument {_TIMED} limits its time" if timed else ""
            problem = f"limits need an actor, and {action.name} has none{bounds}"
            raise RequestRefused(problem, "limits")
        return {}
    its_own = (action.strategize_actor, action.execute_actor, action.review_actor)
    every = (wanted.actor,) if wanted.actor else its_own
    cast = [name for name in every if name]
    model = wanted.model or parts.default_model
    actors = parts.actors(root, wanted.sent_actor)
    _ensure_installed(actors, cast)
    _ensure_model(actors, cast, model)
    limits = _joined(wanted.limits, action.budget)
    ensure_counted(actors, cast, limits)
    if limits.picodollars is not None:
        parts.actor_parts.ensure_priced(actors, cast, model)
    parts.actor_parts.ensure_own_limits(actors, cast, model)
    if model:
        parts.actor_parts.models.get(model)
    sent = {} if wanted.sent_actor is None else {"sent_actor": wanted.sent_actor}
    return {"model": model, "actor": wanted.actor, "limits": thaw(limits.to_json()), **sent}


def _ensure_installed(actors: ActorSource, cast: Sequence[str]) -> None:
    """Raise `ToolRefused` if an external agent is not installed, with the way to install it."""
    from cleveragents.actors.model.actor import AcpNode
    from cleveragents.core.errors import ToolRefused
    from cleveragents.plans.actors.role_models import agents_of_roles
    from cleveragents.processes.program_lookup import absence_of, absence_of_acp

    for name, node in agents_of_roles(actors, cast):
        absence = absence_of(node.argv[0], node.install)
        if isinstance(node, AcpNode):
            absence = absence or absence_of_acp()
        if absence is not None:  # guard: no plan for an agent that is not installed
            raise ToolRefused(name, absence)


def _ensure_model(actors: ActorSource, cast: Sequence[str], model: str) -> None:
    """Raise an error if an actor needs a model and none is set. External agents use their own models."""
    from cleveragents.core.errors import ConfigurationError
    from cleveragents.plans.actors.role_models import models_of_roles

    if "" in models_of_roles(actors, cast, model):
        known = Remedy("model.list", text="List the models")
        default = {"key": "models.default", "value": None}
        setup = Remedy("init", text="Set up a provider and a model")
        remedies = (setup, Remedy("config.set", options=default, text="Set the default model"), known)
        raise ConfigurationError("models.default", "no default model; name a model", remedies)


def _joined(asked: BudgetLimits, budget: Budget) -> BudgetLimits:
    """Return the limits of the user; for each limit that the user does not set, the limit of the action."""
    usd = None if budget.usd is None else round(budget.usd * PICODOLLARS)
    return BudgetLimits(
        picodollars=usd if asked.picodollars is None else asked.picodollars,
        tokens=budget.tokens if asked.tokens is None else asked.tokens,
        steps=budget.steps if asked.steps is None else asked.steps,
        seconds=budget.seconds if asked.seconds is None else asked.seconds,
    )


def named_action(parts: PlanParts, name: str, root: Path) -> Action:
    """Return the action. Built-in actions need no database. Raises `UnknownAction`, `NotTrusted`."""
    from cleveragents.plans.actions.builtins import builtin_action

    return builtin_action(name) or parts.find_action(name, str(root))


def _ensure_sound(parts: PlanParts, action: Action, step: Step, root: Path) -> None:
    """Raise `InvalidArguments` for a call that would fail in any sandbox, unless the action tolerates its
    failure.
    """
    from cleveragents.core.errors import InvalidArguments, InvalidToolCall, OutsideSandbox, ToolRefused
    from cleveragents.tools.files.confined_files import ConfinedFiles

    if step.continue_on_failure:
        return
    try:
        tools = parts.tools
        # Problems with files are ignored: the files may change before the step runs.
        with suppress(OutsideSandbox, ToolRefused):
            tools.capability_of(tools.get(step.tool), step.arguments, ConfinedFiles(root))
    except InvalidToolCall as error:
        raise InvalidArguments(action.name, str(error)) from None
    problem = _pattern_problem(step)
    if problem is not None:
        raise InvalidArguments(action.name, problem)


def _pattern_problem(step: Step) -> str | None:
    """Return the problem of the step's regular expression or its replacement, or None."""
    from cleveragents.tools.files.regex_program import answer, compile_pattern

    takes_one = _IS_REGEX.get(step.tool)
    if takes_one is None or not takes_one(step.arguments):
        return None
    pattern = str(step.arguments["pattern"])
    try:
        compiled = compile_pattern(pattern, ignore_case=False)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{pattern!r} is not a regular expression: {error}"
    replacement = step.arguments.get("replacement")
    if replacement is None:
        return None
    problem = answer(compiled, "", {"replacement": replacement}).get("error")
    return None if problem is None else f"{replacement!r} cannot replace {pattern!r}: {problem}"


def ensure_apply_request(plan: Plan, message: str | None, to_branch: str | None) -> None:
    """Check the options of an apply or undo. Errors as in `ensure_can_commit` and `ensure_new_branch`."""
    remote = remote_of(plan.resource) is not None
    if to_branch is not None:
        ensure_new_branch(to_branch, remote=remote)
    if message is not None and not remote:
        ensure_can_commit(Path(plan.resource))


def ensure_new_branch(to_branch: str, *, remote: bool) -> None:
    """Raise `RequestRefused` unless the plan is on a remote, because only a plan on a remote pushes its
    result; `InvalidName` for an invalid branch name.
    """
    if not remote:
        problem = "only plans on git remotes push to a branch; omit `to_branch`"
        raise RequestRefused(problem, "to_branch")
    new_branch(to_branch, _NO_PLAN)


def ensure_can_commit(root: Path) -> None:
    """Raise `ConfigurationError`, with a remedy, unless git can commit for the user in this repository."""
    from cleveragents.apply.target import git_directory_of
    from cleveragents.apply.user_git import UserGit
    from cleveragents.sandboxes.resources import is_repository

    directory = git_directory_of(root) if is_repository(root) else None
    if directory is None:
        raise ConfigurationError(_ASKED, f"cannot commit: {root} is not a git repository")
    user = UserGit(directory, root)
    if not user.has_identity():
        remedy = "run `git config --global user.name NAME` and `git config --global user.email ADDRESS`"
        raise ConfigurationError(_ASKED, f"cannot commit: git has no user name and address; {remedy}")
    if user.signs_commits():
        remedy = "apply without a commit, then commit the changes yourself"
        raise ConfigurationError(
            _ASKED, f"cannot commit: commit.gpgSign is set, and only your own git can sign; {remedy}"
        )
