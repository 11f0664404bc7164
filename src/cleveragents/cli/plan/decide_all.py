"""`agents plan review` without paths: all plans that need a person, one after another, one key per decision.

A decision takes effect at once. Plans that continue run after the last decision, so that no decision waits
for a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import click

from cleveragents.api.client import LocalClient
from cleveragents.changes.model.merge_conflict import Take
from cleveragents.cli.failure import report
from cleveragents.cli.output import Styled, counted, printable, progress, write
from cleveragents.cli.plan.apply import apply_now
from cleveragents.cli.plan.conflicts import blocking_lines, other_side, resolved_by
from cleveragents.cli.plan.view import (
    print_changes,
    print_hints,
    print_next_steps,
    print_reason,
    printed_at_end,
)
from cleveragents.cli.plan.work import (
    approval_question,
    asked_for,
    asking_call,
    decide,
    is_discard_confirmed,
    print_pending_questions,
    runs_in_front,
    shown_again,
    shown_result,
    work_on,
)
from cleveragents.cli.prompts import prompt_key
from cleveragents.core.errors import CleverAgentsError, ResultChanged
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.api.plans.views import PlanView
    from cleveragents.cli.plan.work import WorkOptions

__all__ = ["decide_all"]

_YES, _NOT_NOW, _SKIP, _QUIT = "y", "n", "s", "q"
_Action = Callable[[], "bool | PlanView"]
"""Acts on a plan, and returns whether that was a decision; or the plan, if its result was shown."""


@dataclass(slots=True)
class _Round:
    """The decisions so far: the roots of plans that continue, and the number of decisions."""

    deciding: WorkOptions
    roots: dict[str, None] = field(default_factory=dict)
    decisions: int = 0


@dataclass(slots=True)
class _Question:
    """The question about one plan: its words, and the action of each key. `later` leaves the plan as it
    is.
    """

    words: list[str]
    actions: dict[str, _Action]
    later: str = _NOT_NOW

    def offer(self, key: str, words: str, action: _Action) -> None:
        self.words.append(words)
        self.actions[key] = action


def decide_all(deciding: WorkOptions, plan_ids: Sequence[str]) -> None:
    """Ask for a decision about each plan, then run the plans that continue.

    `q` and Ctrl-D end the questions. A plan that cannot be read and an action that fails are reported, and
    the next plan follows. After Ctrl-C, the decisions so far stay, and a plan that was to continue can be
    resumed.
    """
    made = _Round(deciding)
    try:
        for number, plan_id in enumerate(plan_ids, 1):
            if not _asked_about(made, plan_id, f"{number}/{len(plan_ids)}"):
                break
    except (KeyboardInterrupt, click.Abort):
        for root in made.roots:
            progress(f"plan {root} was not continued; run `{deciding.prefix} plan resume {root}`")
        raise
    left = len(plan_ids) - made.decisions
    progress(f"{counted(made.decisions, 'decision')}{f', {left} left' if left else ''}")
    _run(made)


def _asked_about(made: _Round, plan_id: str, place: str) -> bool:
    """Ask about one plan until there is a decision. Return False to end the questions."""
    try:
        plan = made.deciding.client.plans.get(plan_id)
    except CleverAgentsError as error:  # deleted meanwhile, for example: the earlier decisions still count
        report(error, made.deciding.prefix)
        return True
    progress("")
    write(Styled(f"[{place}] {printable(plan.title)}", bold=True), err=True)
    progress(f"plan {plan.id}, {plan.meaning}")
    _print_details(plan)
    question = _question(made, plan)
    while True:
        keys = [*question.actions, question.later, _QUIT]
        key = prompt_key(", ".join([*question.words, "[q]uit"]), keys, also=(_SKIP,), end=_QUIT)
        if key in (question.later, _SKIP, _QUIT):
            return key != _QUIT
        try:
            try:
                done = question.actions[key]()
            except ResultChanged as changed:
                done = _conflicts_shown(shown_again(made.deciding, changed))
        except CleverAgentsError as error:
            report(error, made.deciding.prefix)
            return True
        if done is True:
            made.decisions += 1
            return True
        if done:
            question = _question(made, done)


def _print_details(plan: PlanView) -> None:
    """Print the pending request, the failure or the changes of the plan on stderr."""
    if plan.state is PlanState.WAITING:
        print_pending_questions(plan, plan)
    elif plan.state is PlanState.ERRORED:
        print_reason(plan)
    _conflicts_shown(plan)
    if plan.changes:
        print_changes(plan)
    print_hints(plan)


def _question(made: _Round, plan: PlanView) -> _Question:
    """Return the question about a plan, with the same keys as that of `agents run`."""
    plans, call = made.deciding.client.plans, asking_call(plan)

    if "approve" in plan.can and call is not None:
        question = _approval(made, plan, call.number)
    else:
        question = _Question([], {})
        main = _main_action(made, plan)
        if main is None:
            print_next_steps(plan)
        else:
            question.offer(_YES, f"{main[0]}? [y]es", main[1])
        question.words.append("[n]ot now")
    if plan.changes:
        question.offer("d", "show the [d]iff", partial(shown_result, plans, plan))
    if "resolve" in plan.can and (plan.in_the_way or plan.conflicts):
        mine = "keep [m]y lines" if other_side(plan) == "repository" else "those of the [m]erged sub-plan"
        question.offer("o", "take the lines [o]f the plan", partial(_resolved, made, plan, Take.OURS))
        question.offer("m", mine, partial(_resolved, made, plan, Take.THEIRS))
    if "rebase" in plan.can and plan.in_the_way:
        question.offer("b", "re[b]ase", partial(_continued, made, partial(plans.rebase, plan.id)))
    if "reject" in plan.can:
        question.offer("r", "[r] discard" if plan.changes else "[r] close", partial(_discarded, made, plan))
    return question


def _main_action(made: _Round, plan: PlanView) -> tuple[str, _Action] | None:
    """Return the verb and the action that a plan without a pending call needs; None if the plan needs a
    command that no key stands for.
    """
    client = made.deciding.client
    if "answer" in plan.can:
        return "Answer", partial(_answered, made, plan)
    if "apply" in plan.can:
        return "Apply", lambda: bool(apply_now(client, plan))
    resolved = plan.needs == "conflict" and not plan.conflicts
    if "resume" in plan.can and (plan.needs == "error" or plan.state.running or resolved):
        return "Continue", partial(_continued, made, partial(client.plans.resume, plan.id))
    return None


def _resolved(made: _Round, plan: PlanView, take: Take) -> PlanView:
    """Resolve the conflicts that were printed, show the merged result, and return the plan with it."""
    plans = made.deciding.client.plans
    return _conflicts_shown(shown_result(plans, resolved_by(plans, plan, take, progress)))


def _conflicts_shown(plan: PlanView) -> PlanView:
    """Print the conflicts of the plan on stderr, and return it: a key resolves only what was printed."""
    for line in blocking_lines(plan):
        progress(printable(line))
    return plan


def _discarded(made: _Round, plan: PlanView) -> bool:
    if not is_discard_confirmed(plan):
        return False
    made.deciding.client.plans.discard(plan.id, version=plan.version)
    progress("discarded" if plan.changes else "closed")
    return True


def _approval(made: _Round, plan: PlanView, number: int) -> _Question:
    """Return the question about a pending call. It offers longer approvals only if a rule can be added."""
    plans = made.deciding.client.plans
    words, scopes, rule = approval_question(plan, number)
    actions: dict[str, _Action] = {
        _YES: partial(_continued, made, partial(plans.approve, plan.id, call=number))
    }
    for key, scope in scopes.items():
        approve = partial(plans.approve, plan.id, call=number, scope=scope, pattern=rule)
        actions[key] = partial(_continued, made, approve)
    actions["n"] = partial(_continued, made, partial(plans.deny, plan.id, call=number))
    return _Question([words, "[s]kip"], actions, later=_SKIP)


def _continued(made: _Round, act: Callable[[], PlanView]) -> bool:
    plan = act()
    if plan.state.running or plan.state is PlanState.WAITING:
        made.roots[plan.root] = None
    return True


def _answered(made: _Round, plan: PlanView) -> bool:
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    try:
        text = asked_for(waiting)
    except click.Abort as abort:
        if not isinstance(abort.__context__, EOFError):
            raise
        progress("")  # ends the line of the question
        return False
    answer = partial(made.deciding.client.plans.answer, plan.id, text, question=str(waiting.get("question")))
    return _continued(made, answer)


def _run(made: _Round) -> None:
    """Run the plans that continue in this command; workers run the others."""
    deciding, client = made.deciding, made.deciding.client
    here = []
    for root in made.roots:
        plan = client.plans.get(root)
        if runs_in_front(client, plan):
            here.append(plan)
        else:
            progress(f"plan {root} continues; follow it with `{deciding.prefix} plan watch {root}`")
    if len(here) == 1:
        with printed_at_end(client, deciding.output, here[0].id) as told:
            told.plan = decide(deciding, work_on(deciding, here[0], after=None))
    elif here and isinstance(client, LocalClient):
        from cleveragents.cli.run.batch import run_many

        stored = client.access.container.plan_parts.plans
        run_many(deciding, [stored.get(plan.id) for plan in here])
