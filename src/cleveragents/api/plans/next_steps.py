"""What a person can do with a plan next: commands, each with what it does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cleveragents.access.model.remote import remote_of
from cleveragents.api.plans.account import place_of
from cleveragents.api.plans.checks import has_not_run, unpassed_checks
from cleveragents.api.plans.meanings import DONE, is_stopped, is_undecided, waited, works_below
from cleveragents.api.plans.remains import is_kept
from cleveragents.api.plans.spending import more_time
from cleveragents.api.workers import missing_worker, waits_for_worker
from cleveragents.plans.apply_obstacles import is_unknown
from cleveragents.plans.family import below, is_merged, title_of, who_needs_somebody
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.sub_plan import CONFLICT, waits_for_sub_plans

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.apply.ports import CommitRequest
    from cleveragents.plans.model.plan import Plan

__all__ = ["steps_from"]

_FEW = 3

_ASKING = 5


def steps_from(parts: PlanParts, plan: Plan, commit: CommitRequest | None = None) -> list[tuple[str, str]]:
    """What a person can do with the plan next: commands, each with what it does.

    `commit` was asked for and is still to come.
    """
    wanted = _spelt_commit(commit)
    pushed = remote_of(plan.resource) is not None
    brings = f"pushes it to {place_of(parts, plan)}" if pushed else "brings it into your files"
    diff, apply = ("diff", "shows what it changed"), (f"apply{wanted}", brings)
    log, reject = ("log", "says what it did"), ("reject", "says that it is not wanted")
    resume, cancel = ("resume", "goes on with it"), ("cancel", "stops it")
    steps: list[tuple[str, str]] = []
    if waits_for_sub_plans(plan):
        return [*_steps_below(parts, plan), *_spelt_steps(_steps_of_tree(parts, plan), plan)]
    if plan.state is PlanState.WAITING or is_undecided(parts, plan):
        steps = _steps_of_waiting(parts, plan)
    elif plan.standing == DONE and plan.parent_id is not None:
        return _steps_of_part(parts, plan)
    elif plan.standing == DONE:
        steps = [diff, *_steps_of_done(parts, plan, apply, reject)]
    elif plan.phase is Phase.APPLY and plan.state in (PlanState.CONSTRAINED, PlanState.ERRORED):
        steps = [diff, ("review FILE…", "leaves files out"), (f"apply{wanted}", "tries again"), reject]
    elif plan.state is PlanState.ERRORED:
        more = _log_of_agent(parts, plan) or log
        more = more if parts.history.calls(plan.id) else ("show", "says what is known of it")
        steps = [more, (resume[0], "tries again, from the step that failed"), reject]
        return [*_logs_of_failed(parts, plan), *_spelt_steps(steps, plan)]
    elif plan.state is PlanState.APPLIED:
        takes = "pushes one more commit that takes it back" if pushed else "takes it out of your files again"
        steps = [diff, ("undo", takes)] if is_kept(parts, plan) else []
    elif parts.lifecycle.is_to_be_cancelled(plan):
        steps = [(cancel[0], "settles that it is cancelled")]
    elif plan.state.running:
        finding_out = [diff, (f"apply{wanted}", "finds out, and applies it if it was not")]
        steps = finding_out if is_unknown(plan) else _steps_of_running(parts, plan)
    return [*missing_worker(parts, plan), *_spelt_steps(steps, plan)]


def _steps_of_done(parts: PlanParts, plan: Plan, *steps: tuple[str, str]) -> list[tuple[str, str]]:
    """To apply and to reject it, with what comes of that where a check did not pass."""
    (apply, brings), (reject, says) = steps
    unpassed = unpassed_checks(parts, plan)
    if unpassed:
        brings = f"runs its checks again, and {brings} if they pass"
    if has_not_run(unpassed):
        says = f"{says}; another run can have another check"  # a plan keeps those that it was made with
    return [(apply, brings), (reject, says)]


def _steps_of_running(parts: PlanParts, plan: Plan) -> list[tuple[str, str]]:
    cancel = ("cancel", "stops it")
    goes_on = parts.lifecycle.is_worked_on(plan) or waits_for_worker(parts, plan)
    return [cancel] if goes_on else [("resume", "goes on with it"), cancel]


def _spelt_commit(commit: CommitRequest | None) -> str:
    asked = () if commit is None else (("--commit", commit.message), ("--to-branch", commit.branch))
    return "".join(f" {option} {shlex.quote(value)}" for option, value in asked if value)


def _steps_of_tree(parts: PlanParts, plan: Plan) -> list[tuple[str, str]]:
    """Of one that waits for its sub-plans: where somebody works on them, a resume is not what is missing."""
    cancel = ("cancel", "stops it")
    if works_below(parts, plan):
        return [("watch", "follows it"), cancel]
    left = any(one.state.running for one in below(parts, plan))
    if who_needs_somebody(parts, plan) and not left:
        return [cancel]
    return [("resume", "goes on with it"), cancel]


def _steps_below(parts: PlanParts, plan: Plan) -> list[tuple[str, str]]:
    """What those of its sub-plans want to hear that need somebody."""
    steps: list[tuple[str, str]] = []
    for one in who_needs_somebody(parts, plan)[:_ASKING]:
        (step, what), *_ = _steps_of_waiting(parts, one)
        steps.append((_spelt_step(step, one.id), f"{what} ({title_of(one)})"))
    return steps


def _steps_of_waiting(parts: PlanParts, plan: Plan) -> list[tuple[str, str]]:
    resume, cancel = ("resume", "goes on with it"), ("cancel", "stops it")
    waits = waited(plan)
    if is_undecided(parts, plan):
        resolve = ("resolve", "shows what they disagree about; --ours, --theirs or --edited decides it")
        return [resolve, ("resume", "goes on with it then"), cancel]
    if waits == CONFLICT:
        return [resume, cancel]
    if waits == "correction":
        return [resume, cancel]
    if waits == "question":
        return [("answer TEXT", "answers, and goes on with it"), cancel]
    if waits == "budget":
        more = f"resume {_budget_option(parts, plan)}"
        return [(more, "allows it so much in all, and goes on with it"), cancel]
    call = parts.lifecycle.asking(plan)
    number = "" if call is None else f" {call.number}"
    return [(f"approve{number}", "allows it"), (f"deny{number}", "refuses it")]


def _steps_of_part(parts: PlanParts, plan: Plan) -> list[tuple[str, str]]:
    """A sub-plan that is done is decided about with its parent."""
    steps = [(_spelt_step("diff", plan.id), "shows what it changed")]
    if not is_merged(parts, plan):
        steps.append((_spelt_step("resume", plan.root), "goes on with the plan that it is a part of"))
    return [*steps, (_spelt_step("show", plan.root), "says how the whole stands")]


def _budget_option(parts: PlanParts, plan: Plan) -> str:
    """`--max-tokens 5000`, from what the plan says of itself; of time, what it may take now is looked up."""
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    found = re.search(r"--[a-z-]+ [^`\s]+", str(waiting.get("remedy")))
    option = found[0] if found else "--max-tokens N"
    return f"--timeout {more_time(parts, plan)}" if option.startswith("--timeout") else option


def _log_of_agent(parts: PlanParts, plan: Plan) -> tuple[str, str] | None:
    """Where it says why, if another agent failed."""
    from cleveragents.core.tool import AGENT_TOOL
    from cleveragents.plans.agents.desk import ACP

    agents = (AGENT_TOOL, ACP)
    failed = [call for call in parts.history.calls(plan.id) if call.tool in agents and call.error is not None]
    return (f"log {failed[-1].number}", "says what the agent said last") if failed else None


def _logs_of_failed(parts: PlanParts, plan: Plan) -> list[tuple[str, str]]:
    """Where it says why, if it failed because its sub-plans did."""
    children = parts.plans.children(plan.id)
    failed = [child for child in children if child.state is PlanState.ERRORED and not is_stopped(child)]
    return [(_spelt_step("log", one.id), f"says what {title_of(one)!r} did") for one in failed[:_FEW]]


def _spelt_steps(steps: Sequence[tuple[str, str]], plan: Plan) -> list[tuple[str, str]]:
    return [(_spelt_step(step, plan.id), what) for step, what in steps]


def _spelt_step(step: str, plan_id: str) -> str:
    name, _, rest = step.partition(" ")
    return f"agents plan {name} {plan_id}" + (f" {rest}" if rest else "")
