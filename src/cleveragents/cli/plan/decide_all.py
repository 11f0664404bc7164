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
from cleveragents.cli.failure import report
from cleveragents.cli.output import Styled, counted, printable, progress, write
from cleveragents.cli.plan.apply import apply_now
from cleveragents.cli.plan.view import (
    print_changes,
    print_hints,
    print_reason,
    printed_at_end,
    shown_diff,
)
from cleveragents.cli.plan.work import (
    asked_for,
    asking_call,
    decide,
    print_pending_questions,
    runs_in_front,
    work_on,
)
from cleveragents.cli.prompts import prompt_key
from cleveragents.core.errors import CleverAgentsError
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from cleveragents.api.plans.client import ApprovalScope
    from cleveragents.api.plans.views import PlanView
    from cleveragents.cli.plan.work import WorkOptions

__all__ = ["decide_all"]

_SKIP, _QUIT = "s", "q"


@dataclass(slots=True)
class _Round:
    """The decisions so far: the roots of plans that continue, and the number of decisions."""

    deciding: WorkOptions
    roots: dict[str, None] = field(default_factory=dict)
    decisions: int = 0


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
    actions = _actions(made, plan)
    names = [name for name, _ in actions.values()]
    while True:
        key = prompt_key(", ".join([*names, "[s]kip, [q]uit"]), [*actions, _SKIP, _QUIT])
        if key in (_SKIP, _QUIT):
            return key != _QUIT
        try:
            done = actions[key][1]()
        except CleverAgentsError as error:
            report(error, made.deciding.prefix)
            return True
        if done:
            made.decisions += 1
            return True


def _print_details(plan: PlanView) -> None:
    """Print the pending request, the failure or the changes of the plan on stderr."""
    if plan.state is PlanState.WAITING:
        print_pending_questions(plan, plan)
    elif plan.state is PlanState.ERRORED:
        print_reason(plan)
    if plan.changes:
        print_changes(plan)
    print_hints(plan)


_Action = tuple[str, Callable[[], bool]]


def _actions(made: _Round, plan: PlanView) -> Mapping[str, _Action]:
    """Return the possible actions by their keys. An action returns whether it was a decision."""
    client, actions = made.deciding.client, dict[str, _Action]()
    plans, call = client.plans, asking_call(plan)

    def applied() -> bool:
        apply_now(client, plan)
        return True

    def shown() -> bool:
        shown_diff(plans.patch(plan.id, renames=True))
        return False

    def discarded() -> bool:
        plans.discard(plan.id, version=plan.version)
        progress("discarded")
        return True

    if "approve" in plan.can and call is not None:
        actions |= _approvals(made, plan, call.number)
    elif "answer" in plan.can:
        actions["a"] = "[a]nswer", partial(_answered, made, plan)
    elif "apply" in plan.can:
        actions["a"] = "[a]pply", applied
    if plan.changes:
        actions["d"] = "show the [d]iff", shown
    if "resume" in plan.can and plan.needs == "error":
        actions["c"] = "[c]ontinue", partial(_continued, made, partial(plans.resume, plan.id))
    if "reject" in plan.can:
        actions["r"] = "[r] discard", discarded
    return actions


def _approvals(made: _Round, plan: PlanView, number: int) -> dict[str, _Action]:
    """Return the responses to a pending call by their keys; longer approvals only if a rule is suggested."""
    plans, approval = made.deciding.client.plans, plan.approval
    actions: dict[str, _Action] = {
        "a": ("[a]pprove", partial(_continued, made, partial(plans.approve, plan.id, call=number)))
    }
    rule = None if approval is None else approval.pattern
    longer: tuple[tuple[str, ApprovalScope, str], ...] = ()
    if approval is not None and rule is not None:
        always = f"al[w]ays `{rule}` in {approval.project_scope}"
        longer = (("p", "plan", f"`{rule}` for this [p]lan"), ("w", "project", always))
        longer = tuple(one for one in longer if one[1] in approval.scopes)
    for key, scope, label in longer:
        approve = partial(plans.approve, plan.id, call=number, scope=scope, pattern=rule)
        actions[key] = label, partial(_continued, made, approve)
    actions["n"] = "de[n]y", partial(_continued, made, partial(plans.deny, plan.id, call=number))
    return actions


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
