"""Plans as the command line shows them, and how a plan is named on it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.application.services.plan_family import (
    below,
    conflicts_of,
    count_of_parts,
    is_merged,
    left_out_in_words,
    left_out_of,
    short_of,
    title_of,
    wanted_parts,
    who_needs_somebody,
)
from cleveragents.domain.cancel_reason import is_mere_stop
from cleveragents.domain.json_value import JsonValue, freeze
from cleveragents.domain.plan import Phase, PlanState, spelt
from cleveragents.domain.redaction import redact, redact_text
from cleveragents.domain.sub_plan import CONFLICT, waits_for_sub_plans
from cleveragents.interfaces.cli.narrow import steps_in_lines
from cleveragents.interfaces.cli.output import colour, progress, timestamp
from cleveragents.interfaces.cli.plan_reach import is_out_of_reach
from cleveragents.interfaces.cli.plan_remains import is_kept

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.application.ports.applies import CommitRequest
    from cleveragents.domain.plan import Plan

__all__ = [
    "diff_options",
    "fields_of",
    "found_plan",
    "goal_of",
    "meaning_of",
    "on_one_line",
    "plan_argument",
    "shown_diff",
    "state_in_short",
    "steps_from",
    "told_next",
    "told_reason",
    "waited",
    "what_it_waits_for",
]

_FEW = 3
_ASKING = 5
_DONE = (Phase.EXECUTE, PlanState.COMPLETE)
_DISAGREE = "its sub-plans disagree, and you are to decide"

plan_argument = click.argument("plan_id", metavar="PLAN")

_MEANINGS = {
    (Phase.EXECUTE, PlanState.COMPLETE): "done, not applied",
    (Phase.APPLY, PlanState.CONSTRAINED): "not applied; something stands in the way",
    (Phase.APPLY, PlanState.ERRORED): "not applied",
}

_RESULTS = (PlanState.COMPLETE, PlanState.APPLIED, PlanState.CONSTRAINED)
"""The states in which a plan has a result, which may lack something."""

_WAITS = {
    "leave": "it needs your leave to go on",
    "question": "it asks you something",
    "budget": "it may not spend more",
    CONFLICT: _DISAGREE,
    "correction": "it is being corrected",
}


def found_plan(parts: PlanParts, plan_id: str) -> Plan:
    """The plan of that id, or of which that is the beginning or the end; as its job has left it."""
    return parts.lifecycle.reconciled(parts.plans.find(plan_id))


def fields_of(plan: Plan) -> dict[str, JsonValue]:
    """A plan as rows and JSON show it."""
    return {
        "id": plan.id,
        "goal": redact_text(plan.goal),
        "action": plan.action,
        "phase": plan.phase.value,
        "state": plan.state.value,
        "resource": plan.resource,
        "created": timestamp(plan.created_at),
        "updated": timestamp(plan.updated_at),
        "waiting_for": plan.waiting_for,
        "error": None if plan.error is None else redact_text(plan.error),
        "request": freeze(redact(plan.request)),
        "job": plan.job_id,
        "parent": plan.parent_id,
        "root": plan.root,
        "depth": plan.depth,
    }


def on_one_line(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


def goal_of(plan: Plan) -> str:
    """As a line or a cell has room for it."""
    return on_one_line(redact_text(plan.goal))


def waited(plan: Plan) -> str:
    """What a waiting plan waits for: `leave` for a call, the answer to a `question`, more `budget`."""
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return str(waiting.get("for") or "leave")


def what_it_waits_for(plan: Plan) -> str:
    """In the words of whoever asks, line breaks and all."""
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    return redact_text(str(waiting.get("what")))


def told_reason(plan: Plan) -> None:
    """Why the plan stands where it does, on stderr, if it has a reason."""
    error = None if plan.error is None else redact_text(plan.error)
    if plan.state is PlanState.WAITING:
        error = f"it waits: {what_it_waits_for(plan)}"
    elif error is not None and plan.state is PlanState.ERRORED:
        error = f"it failed: {error}"
    for line in (error or "").splitlines():
        progress(line)


def meaning_of(parts: PlanParts, plan: Plan) -> str:
    """Where the plan stands, in words."""
    if parts.lifecycle.is_to_be_cancelled(plan):
        return f"{spelt(plan.standing)}: it was to be cancelled, and whoever worked on it is gone"
    if plan.state.running and plan.phase is not Phase.APPLY and not parts.lifecycle.is_worked_on(plan):
        return f"{spelt(plan.standing)}: nobody works on it at present"
    meaning = _MEANINGS.get(plan.standing)
    if _is_stopped(plan):
        meaning = "it was stopped, because another part failed, and can go on"
    if plan.state.running and is_out_of_reach(parts, plan):
        meaning = f"{plan.resource} is out of reach; `agents doctor` says more"
    if plan.state is PlanState.WAITING:
        meaning = _of_waiting(parts, plan)
    elif _is_undecided(parts, plan):
        meaning = _DISAGREE
    elif plan.state is PlanState.COMPLETE and plan.parent_id is not None:
        into = f"merged into {short_of(plan.parent_id)}" if is_merged(parts, plan) else "to be merged"
        meaning = f"done, {into}"
    elif plan.state is PlanState.COMPLETE and not parts.history.changes(plan.id):
        meaning = "done, nothing was changed"
    without = left_out_in_words(parts, plan) if plan.state in _RESULTS else ""
    return spelt(plan.standing) + (f": {meaning}" if meaning else "") + (f"; {without}" if without else "")


def state_in_short(parts: PlanParts, plan: Plan) -> str:
    """As a row has room for it: a plan that is done is there to be applied, or changed nothing; of one whose
    sub-plans are under way, how many of them are done."""
    lacks = len(left_out_of(parts, plan)) if plan.state in _RESULTS else 0
    return _in_short(parts, plan) + (f" ({lacks} left out)" if lacks else "")


def _in_short(parts: PlanParts, plan: Plan) -> str:
    if waits_for_sub_plans(plan) or (plan.state.running and wanted_parts(plan)):
        return f"sub-plans {count_of_parts(parts, plan)}"
    if _is_undecided(parts, plan):
        return CONFLICT
    if _is_stopped(plan):
        return "stopped"
    if plan.standing != _DONE:
        return plan.state.value
    if plan.parent_id is not None:
        return "merged" if is_merged(parts, plan) else "to merge"
    return "to apply" if parts.history.changes(plan.id) else "no change"


def steps_from(parts: PlanParts, plan: Plan, commit: CommitRequest | None = None) -> list[tuple[str, str]]:
    """What a person can do with the plan next: commands, each with what it does.

    `commit` was asked for and is still to come.
    """
    wanted = "" if commit is None else f" --commit {shlex.quote(commit.message)}"
    diff, apply = ("diff", "shows what it changed"), (f"apply{wanted}", "brings it into your files")
    log, reject = ("log", "says what it did"), ("reject", "says that it is not wanted")
    resume, cancel = ("resume", "goes on with it"), ("cancel", "stops it")
    steps: list[tuple[str, str]] = []
    if waits_for_sub_plans(plan):
        return [*_steps_below(parts, plan), *_spelt_steps(_steps_of_tree(parts, plan), plan)]
    if plan.state is PlanState.WAITING or _is_undecided(parts, plan):
        steps = _steps_of_waiting(parts, plan)
    elif plan.standing == _DONE and plan.parent_id is not None:
        return _steps_of_part(parts, plan)
    elif plan.standing == _DONE:
        steps = [diff, apply, reject]
    elif plan.phase is Phase.APPLY and plan.state in (PlanState.CONSTRAINED, PlanState.ERRORED):
        steps = [diff, ("review FILE…", "leaves files out"), (f"apply{wanted}", "tries again"), reject]
    elif plan.state is PlanState.ERRORED:
        more = _log_of_agent(parts, plan) or log
        more = more if parts.history.calls(plan.id) else ("show", "says what is known of it")
        steps = [more, (resume[0], "tries again, from the step that failed"), reject]
        return [*_logs_of_failed(parts, plan), *_spelt_steps(steps, plan)]
    elif plan.state is PlanState.APPLIED:
        steps = [diff, ("undo", "takes it out of your files again")] if is_kept(parts, plan) else []
    elif parts.lifecycle.is_to_be_cancelled(plan):
        steps = [(cancel[0], "settles that it is cancelled")]
    elif plan.state.running:
        steps = [cancel] if parts.lifecycle.is_worked_on(plan) else [resume, cancel]
    return _spelt_steps(steps, plan)


def _of_waiting(parts: PlanParts, plan: Plan) -> str:
    if waits_for_sub_plans(plan):
        return _of_sub_plans(parts, plan)
    if waited(plan) == CONFLICT and not _is_undecided(parts, plan):
        return "all that its sub-plans disagreed about is decided; it can go on"
    return _WAITS.get(waited(plan), _WAITS["leave"])


def _of_sub_plans(parts: PlanParts, plan: Plan) -> str:
    """How far they are, and which of them cannot go on without a person."""
    needing = [short_of(one.id) for one in who_needs_somebody(parts, plan)]
    said = f"{count_of_parts(parts, plan)} of its sub-plans are done"
    if _works_below(parts, plan):
        said = f"at work; {said}"
    elif not needing:
        said = f"{said}, and nobody works on the others at present"
    if len(needing) > _ASKING:
        return f"{said}; {len(needing)} of them need you"
    asks = f"; {' and '.join(needing)} {'needs' if len(needing) == 1 else 'need'} you" if needing else ""
    return said + asks


def _works_below(parts: PlanParts, plan: Plan) -> bool:
    return any(one.state.running and parts.lifecycle.is_worked_on(one) for one in below(parts, plan))


def _is_stopped(plan: Plan) -> bool:
    """Whether it is not done because another part of the same plan failed."""
    return plan.state is PlanState.ERRORED and is_mere_stop(plan.error)


def _is_undecided(parts: PlanParts, plan: Plan) -> bool:
    """Whether its sub-plans disagree about something, said by itself or found by whoever took back what was
    decided."""
    asked = plan.standing == _DONE or (plan.state is PlanState.WAITING and waited(plan) == CONFLICT)
    return asked and bool(wanted_parts(plan)) and bool(conflicts_of(parts, plan))


def _steps_of_tree(parts: PlanParts, plan: Plan) -> list[tuple[str, str]]:
    """Of one that waits for its sub-plans: where somebody works on them, a resume is not what is missing."""
    cancel = ("cancel", "stops it")
    if _works_below(parts, plan):
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
    if _is_undecided(parts, plan):
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


def told_next(parts: PlanParts, plan: Plan, commit: CommitRequest | None = None) -> None:
    """What can be done with the plan, on stderr."""
    for line in steps_in_lines(steps_from(parts, plan, commit), sys.stderr):
        progress(line)


def diff_options() -> list[str]:
    """How git is to write a whole difference to where stdout goes: a patch, with colours for eyes."""
    coloured = sys.stdout.isatty() and colour() is None
    return ["--binary", "--color=always"] if coloured else ["--binary"]


def shown_diff(text: bytes) -> None:
    """A difference on stdout; through a pager where it is longer than the terminal."""
    # The bytes as they are: a difference is often given to another program.
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        return
    shown = text.decode("utf-8", "backslashreplace")
    if len(shown.splitlines()) < _height():
        click.echo(shown, nl=False, color=colour())
    else:
        click.echo_via_pager(shown, color=colour())


def _budget_option(parts: PlanParts, plan: Plan) -> str:
    """`--max-tokens 5000`, from what the plan says of itself; of time, what it may take now is looked up."""
    from cleveragents.interfaces.cli.budget_options import more_time

    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    found = re.search(r"--[a-z-]+ [^`\s]+", str(waiting.get("remedy")))
    option = found[0] if found else "--max-tokens N"
    return f"--timeout {more_time(parts, plan)}" if option.startswith("--timeout") else option


def _log_of_agent(parts: PlanParts, plan: Plan) -> tuple[str, str] | None:
    """Where it says why, if another agent failed."""
    from cleveragents.application.services.agent_desk import ACP
    from cleveragents.domain.tool import AGENT_TOOL

    agents = (AGENT_TOOL, ACP)
    failed = [call for call in parts.history.calls(plan.id) if call.tool in agents and call.error is not None]
    return (f"log {failed[-1].number}", "says what the agent said last") if failed else None


def _logs_of_failed(parts: PlanParts, plan: Plan) -> list[tuple[str, str]]:
    """Where it says why, if it failed because its sub-plans did."""
    children = parts.plans.children(plan.id)
    failed = [child for child in children if child.state is PlanState.ERRORED and not _is_stopped(child)]
    return [(_spelt_step("log", one.id), f"says what {title_of(one)!r} did") for one in failed[:_FEW]]


def _spelt_steps(steps: Sequence[tuple[str, str]], plan: Plan) -> list[tuple[str, str]]:
    return [(_spelt_step(step, plan.id), what) for step, what in steps]


def _spelt_step(step: str, plan_id: str) -> str:
    name, _, rest = step.partition(" ")
    return f"agents plan {name} {plan_id}" + (f" {rest}" if rest else "")


def _height() -> int:
    import shutil

    return shutil.get_terminal_size().lines - 1
