"""Several plans in parallel: one worker runs them, then they are applied in order or left for review."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from cleveragents.api.client import LocalClient
from cleveragents.api.format import on_one_line
from cleveragents.api.plans.status_text import goal_of
from cleveragents.cli.output import progress
from cleveragents.cli.plan.apply import apply_now
from cleveragents.cli.plan.exit_codes import INTERRUPTED, NEEDS_HUMAN, exit_code, joint_exit_code, short_ids
from cleveragents.cli.plan.view import plan_in_json, print_next_steps
from cleveragents.cli.plan.work import name_of, name_review, plans_needing_action, should_apply
from cleveragents.cli.render.board import Board, board_for
from cleveragents.cli.run.foreground import handler_of, run_in_front
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from cleveragents.api.plans.views import PlanView
    from cleveragents.app.container import Container
    from cleveragents.cli.output import Output
    from cleveragents.cli.plan.work import WorkOptions
    from cleveragents.core.json_value import JsonValue
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.output_recorder import OutputRecorder

__all__ = ["print_outcomes", "run_many"]


def run_many(deciding: WorkOptions, plans: Sequence[Plan]) -> None:
    """Run all plans and print the outcome of each. No question is asked: plans that need a person come to
    rest.

    Exits with 1 if any failed, otherwise with 3 if any needs a person; with 130 after Ctrl-C.
    """
    client, only_review = deciding.client, deciding.only_review
    assert isinstance(client, LocalClient)
    interrupted = _work_on_all(client.access.container, plans, deciding)
    ended = [client.plans.get(plan.id) for plan in plans]
    if not interrupted and not only_review:
        ended = [_settled(deciding, plan) for plan in ended]
    print_outcomes(deciding, ended, interrupted=interrupted)


def print_outcomes(deciding: WorkOptions, plans: Sequence[PlanView], *, interrupted: bool) -> None:
    """Print the outcome of each plan and its next steps. Exits as `run_many` does."""
    _tell(plans, deciding.output)
    codes = [exit_code(plan, only_review=deciding.only_review) for plan in plans]
    for plan, code in zip(plans, codes, strict=True):
        _tell_what_next(deciding, plan, code)
    if any(plan.needs for plan in plans):
        name_review(deciding)
    code = INTERRUPTED if interrupted else joint_exit_code(codes)
    if code:
        raise click.exceptions.Exit(code)


def _work_on_all(container: Container, plans: Sequence[Plan], deciding: WorkOptions) -> bool:
    """Run the plans and return whether they were interrupted; afterwards none of them runs here."""
    from cleveragents.plans.jobs.names import kind_of_plan

    def hire(board: Board, recorder: OutputRecorder) -> AsyncWorker:
        for plan in plans:
            board.view_of(plan).say(f"plan {plan.id}: {goal_of(plan)}")
        handler = handler_of(container, board, recorder)
        handlers = {kind_of_plan(plan.id): handler for plan in plans}
        return container.worker(handlers, name=f"run-{os.getpid()}", concurrency=deciding.parallel)

    return run_in_front(container, plans, partial(board_for, container, plans, deciding.output), hire)


def _settled(deciding: WorkOptions, plan: PlanView) -> PlanView:
    """Apply the plan if no question is needed, otherwise print why it is not applied; return the plan."""
    if (plan.phase, plan.state) != (Phase.EXECUTE, PlanState.COMPLETE) or not plan.changes:
        return plan
    below = _Below(f"plan {plan.id}: {on_one_line(plan.goal)}")
    try:
        if should_apply(plan, yes=deciding.yes, commit=None, tell=below.tell):
            below.head()
            return apply_now(deciding.client, plan)
    except CleverAgentsError as error:
        below.tell(redact_text(str(error)))
    return deciding.client.plans.get(plan.id)


class _Below:
    """Prints messages below a heading; the heading is printed before the first message. Not thread-safe:
    plans are handled one after another.
    """

    def __init__(self, heading: str) -> None:
        self._heading: str | None = heading

    def head(self) -> None:
        heading, self._heading = self._heading, None
        if heading is not None:
            progress(heading)

    def tell(self, message: str) -> None:
        self.head()
        progress(message)


def _tell(plans: Sequence[PlanView], output: Output) -> None:
    if output.machine_readable:
        output.table([plan_in_json(plan) for plan in plans], [], empty="")
        return
    shorts = short_ids([plan.id for plan in plans])
    rows: list[dict[str, JsonValue]] = [
        {
            "plan": shorts[plan.id] if output.human_readable else plan.id,
            "status": plan.meaning,
            "files": len(plan.changes),
            "tokens": plan.spending.tokens,
            "goal": plan.title,
        }
        for plan in plans
    ]
    columns = ["plan", "status", "files", "tokens", "goal"]
    output.table(rows, columns, empty="", cut=["goal", "status"], spare=["tokens", "files"])


def _tell_what_next(deciding: WorkOptions, plan: PlanView, code: int) -> None:
    if code == NEEDS_HUMAN:
        for one in plans_needing_action(deciding.client, plan) or [plan]:
            progress(f"plan {one.id} needs you: {name_of(one)}")
            print_next_steps(one)
    elif plan.status is PlanStatus.PAUSED:
        progress(f"plan {plan.id} is paused")
        print_next_steps(plan)
    elif code:
        progress(f"plan {plan.id}: {redact_text(plan.error or 'failed')}")
        print_next_steps(plan)
