"""The plan of a command that names none: the only candidate in this repository, or a choice on a terminal.

A candidate is a plan that needs the command, such as a plan with a pending question for `plan answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from cleveragents.cli.completion import complete_plan
from cleveragents.cli.output import counted, progress
from cleveragents.cli.plan.exit_codes import NEEDS_HUMAN, short_ids
from cleveragents.cli.prompts import confirmed, ensure_confirmed, prompt_choice
from cleveragents.core.errors import AmbiguousPlan, UnknownPlan
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.plans.client import Plans
    from cleveragents.api.plans.summary import PlanSummary

__all__ = [
    "chosen_plan",
    "chosen_version",
    "ids_to_decide",
    "names_a_plan",
    "nothing_to_decide",
    "optional_plan",
    "place_here",
    "plan_and_number",
    "plan_to_undo",
    "plans_for",
]

optional_plan = click.argument("plan_id", metavar="[PLAN]", required=False, shell_complete=complete_plan)

_SHORTEST_ID = 4
"""A shorter word, such as `yes` or `2`, is never taken for a plan."""
_READING = ("show", "diff", "tree", "log", "comments", "watch")
"""The actions that change nothing."""
_CONTINUING = ("show", "review", "resume")
"""The actions that also have plans whose process died as candidates."""
_FOLLOWING = ("resume", "watch")
"""The actions that print the plan themselves, unless it is a sub-plan."""
_RESTING = (PlanState.WAITING, PlanState.COMPLETE, PlanState.CONSTRAINED, PlanState.ERRORED)


class _Candidates(Struct, frozen=True):
    """The plans that need a command, and the words for one and for several of them."""

    one: str
    several: str
    fits: Callable[[PlanSummary], bool]


def _needs(*kinds: str) -> Callable[[PlanSummary], bool]:
    return lambda plan: plan.needs in kinds and not plan.waits_for_sub_plans


def _has_result(plan: PlanSummary) -> bool:
    return plan.needs == "review" or (plan.needs is not None and plan.phase is Phase.APPLY)


def _can_discard(plan: PlanSummary) -> bool:
    return _has_result(plan) or plan.needs == "error"


def _can_resume(plan: PlanSummary) -> bool:
    can = plan.status is PlanStatus.PAUSED or plan.parked_until is not None
    return can or _needs("error", "budget")(plan)


def _needs_you(plan: PlanSummary) -> bool:
    return plan.needs is not None and not plan.waits_for_sub_plans


def _runs(plan: PlanSummary) -> bool:
    return plan.state.running and plan.parent is None


_NEEDS_YOU = _Candidates("needs you", "need you", _needs_you)
_RUNS = _Candidates("is running", "are running", _runs)
_OPEN = _Candidates(
    "is running or needs you", "are running or need you", lambda plan: _runs(plan) or _needs_you(plan)
)
_FOR: Mapping[str, _Candidates] = {
    "show": _NEEDS_YOU,
    "review": _NEEDS_YOU,
    "diff": _Candidates("has a result to review", "have a result to review", _has_result),
    "apply": _Candidates("has a result to apply", "have a result to apply", _has_result),
    "discard": _Candidates("has a result to discard", "have a result to discard", _can_discard),
    "rebase": _Candidates(
        "has a conflict with the repository",
        "have a conflict with the repository",
        lambda plan: plan.state is PlanState.CONSTRAINED and plan.needs == "conflict",
    ),
    "resolve": _Candidates("has a conflict", "have a conflict", _needs("conflict")),
    "revise": _Candidates("has a result to revise", "have a result to revise", _has_result),
    "capture": _Candidates("has a sandbox to edit", "have a sandbox to edit", _can_discard),
    "rollback": _Candidates("has calls to roll back", "have calls to roll back", _can_discard),
    "watch": _RUNS,
    "pause": _RUNS,
    "cancel": _Candidates(
        "is running or paused",
        "are running or paused",
        lambda plan: _runs(plan) or (plan.status is PlanStatus.PAUSED and plan.parent is None),
    ),
    "tree": _OPEN,
    "log": _OPEN,
    "comments": _OPEN,
    "approve": _Candidates("waits for approval", "wait for approval", _needs("approval")),
    "deny": _Candidates("waits for approval", "wait for approval", _needs("approval")),
    "answer": _Candidates("has a question", "have a question", _needs("question")),
    "resume": _Candidates("can be resumed", "can be resumed", _can_resume),
}


def place_here(client: Client) -> str | None:
    """Return the current repository in the form that `plans.list` accepts: its path, or for a server the name
    of its resource. None outside a repository, or if no resource of the server matches.
    """
    try:
        return _place(client)
    except click.UsageError:
        return None


def _place(client: Client) -> str | None:
    """Return the place as `place_here` does. Raises `click.UsageError` if no resource of the server, or more
    than one, matches the current repository.
    """
    from cleveragents.cli.local_only import goes_to_server

    if goes_to_server(click.get_current_context()):
        from cleveragents.cli.run.server_resources import resource_here

        return resource_here(client, "agents", None, otherwise="pass a PLAN")
    here = Path.cwd().resolve()
    return next((str(folder) for folder in (here, *here.parents) if (folder / ".git").exists()), None)


def _place_to_change(client: Client) -> str:
    """Return the current repository, or else the current directory. Raises `click.UsageError` on a server
    without a matching resource, because a command acts on plans of other repositories only if the user names
    them.
    """
    return _place(client) or str(Path.cwd().resolve())


def plans_for(client: Client, action: str) -> list[PlanSummary]:
    """Return the candidates of an action in this repository, or else in this directory; oldest first.

    On a server without a matching resource, `show` and `diff` have the candidates of all resources; other
    actions raise `click.UsageError`.
    """
    from cleveragents.cli.local_only import goes_to_server

    reads_a_server = action in _READING and goes_to_server(click.get_current_context())
    place = place_here(client) if reads_a_server else _place_to_change(client)
    return _candidates(client, action, place)[::-1]


def _candidates(client: Client, action: str, place: str | None) -> list[PlanSummary]:
    """Return the candidates of an action at this place, or everywhere if `place` is None; newest first."""
    from cleveragents.api.views import every

    # A plan whose process died, and an apply with an unknown outcome, are still processing.
    states = (*_RESTING, PlanState.QUEUED, PlanState.PROCESSING)
    found = every(lambda after: client.plans.list(states=states, resource=place, after=after))
    continues = action in _CONTINUING
    return [plan for plan in found if _FOR[action].fits(plan) or (continues and _is_abandoned(client, plan))]


def _is_abandoned(client: Client, plan: PlanSummary) -> bool:
    """Return whether the process that ran the plan died, so that the plan continues only after a resume."""
    if not plan.state.running or plan.phase is Phase.APPLY:
        return False
    try:
        return "resume" in client.plans.get(plan.id).can
    except UnknownPlan:  # deleted meanwhile
        return False


def chosen_plan(client: Client, plan_id: str | None, action: str, *, question: str | None = None) -> str:
    """Return the id of `chosen_version`."""
    return chosen_version(client, plan_id, action, question=question)[0]


def chosen_version(
    client: Client, plan_id: str | None, action: str, *, question: str | None = None
) -> tuple[str, int | None]:
    """Return the named plan, or the only candidate of the action, or the candidate that the user chooses;
    with the version that the user saw, which is None for a named plan.

    The chosen plan is printed. With a `question`, an only candidate needs a confirmation. Raises
    `click.UsageError` if there is no candidate, or without a terminal if one of several must be chosen or a
    confirmation is needed; `click.Abort` if the answer is no.
    """
    from cleveragents.cli.plan.work import interactive

    if plan_id is not None:
        return plan_id, None
    found, wanted = plans_for(client, action), _FOR[action]
    if not found:
        raise click.UsageError(f"no plan of this repository {wanted.one}; pass a PLAN")
    plan = found[0] if len(found) == 1 else _asked_which(found, wanted.several)
    if action not in _FOLLOWING or plan.parent is not None:
        progress(f"plan {plan.id}: {plan.title}")
    if question is not None and len(found) == 1:  # guard: the user may have another plan in mind
        if not interactive():
            raise click.UsageError(f"pass the PLAN: {plan.id}")
        ensure_confirmed(question)
    return plan.id, plan.version


def plan_and_number(plan_id: str | None, number: int | None) -> tuple[str | None, int | None]:
    """Return the arguments `[PLAN] [NUMBER]`; a short number alone is the number, not a plan."""
    if number is None and plan_id is not None and len(plan_id) < _SHORTEST_ID and plan_id.isdecimal():
        return None, int(plan_id)
    return plan_id, number


def names_a_plan(plans: Plans, word: str) -> bool:
    """Return whether a word is the id of a plan, or the beginning or end of at least one id."""
    if not word.isalnum() or len(word) < _SHORTEST_ID:
        return False
    try:
        plans.summary(word)
    except UnknownPlan:
        return False
    except AmbiguousPlan:
        return True
    return True


def ids_to_decide(client: Client) -> list[str]:
    """Return the ids of all plans here that need a person, oldest first. Without a terminal, print them and
    exit with 3.
    """
    from cleveragents.cli.failure import say_error
    from cleveragents.cli.plan.work import interactive

    found = plans_for(client, "review")
    if found and not interactive():
        waiting = f"{counted(len(found), 'plan')} of this repository to review, but no terminal to ask in"
        say_error(_listed(found, waiting))
        raise click.exceptions.Exit(NEEDS_HUMAN)
    return [plan.id for plan in found]


def nothing_to_decide(client: Client, prefix: str) -> str:
    """Return the message that no plan of this repository needs a person, with the number of plans of other
    repositories that do.
    """
    here, others = "no plan of this repository needs you", len(_candidates(client, "review", None))
    if not others:
        return here
    need = f"{counted(others, 'plan')} of other repositories {'needs' if others == 1 else 'need'} you"
    return f"{here}; {need}: list the plans with `{prefix} plan list --all`"


def _listed(found: Sequence[PlanSummary], heading: str) -> str:
    return "\n".join([f"{heading}; pass one as PLAN:", *_lines(found)])


def _lines(found: Sequence[PlanSummary]) -> list[str]:
    shorts = short_ids([plan.id for plan in found])
    return [f"{shorts[plan.id]}  {plan.status.value}  {plan.title}" for plan in found]


def _asked_which(found: Sequence[PlanSummary], words: str) -> PlanSummary:
    from cleveragents.cli.plan.work import interactive

    heading = f"{len(found)} plans of this repository {words}"
    if not interactive():
        raise click.UsageError(_listed(found, heading))
    progress(f"{heading}:")
    names = [str(number) for number in range(1, len(found) + 1)]
    for number, line in zip(names, _lines(found), strict=True):
        progress(f"  {number}  {line}")
    return found[int(prompt_choice(f"Which plan? [1-{len(found)}]", names)) - 1]


def plan_to_undo(client: Client, plan_id: str | None, *, yes: bool) -> str:
    """Return the named plan, or the plan that was applied last in this repository, after a confirmation.

    Raises `click.UsageError` if there is none, or without a terminal and without `yes`; `click.Abort` if the
    answer is no.
    """
    from cleveragents.api.views import every
    from cleveragents.cli.plan.work import interactive

    if plan_id is not None:
        return plan_id
    place = _place_to_change(client)
    applied = every(lambda after: client.plans.list(states=(PlanState.APPLIED,), resource=place, after=after))
    last = max((plan for plan in applied if plan.parent is None), key=_moment, default=None)
    if last is None:
        raise click.UsageError("no plan was applied in this repository; pass a PLAN")
    progress(f"plan {last.id}: {last.title}")
    if not yes and not interactive():
        raise click.UsageError(
            f"pass --yes to undo the plan that was applied last, or pass a PLAN: {last.id}"
        )
    if not yes and not confirmed("Undo it?"):
        raise click.Abort
    return last.id


def _moment(plan: PlanSummary) -> tuple[object, str]:
    return plan.updated, plan.id
