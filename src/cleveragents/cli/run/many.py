"""Several plans at once: worked on by one worker, then applied in order or left for their user to decide."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import account_of
from cleveragents.api.plans.changes import changes_of
from cleveragents.api.plans.meanings import goal_of, meaning_of
from cleveragents.api.plans.spending import spending_of
from cleveragents.cli.output import progress
from cleveragents.cli.plan.outcome import (
    INTERRUPTED,
    NEEDS_HUMAN,
    exit_code_of,
    joint_exit_code,
    short_ids,
)
from cleveragents.cli.plan.view import told_next
from cleveragents.cli.plan.work import apply_now, handler_of, is_to_be_applied
from cleveragents.cli.render.board import Board, board_for
from cleveragents.cli.run.foreground import run_in_front
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.family import title_of, who_needs_somebody
from cleveragents.plans.model.plan import Phase, PlanState

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.cli.output import Output
    from cleveragents.core.json_value import JsonValue
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.plans.model.plan import Plan

__all__ = ["run_many"]


def run_many(
    container: Container,
    plans: Sequence[Plan],
    output: Output,
    *,
    parallel: int | None,
    yes: bool,
    only_review: bool,
) -> None:
    """Works on all of them and tells what came of each. Nobody is asked: what needs a person rests.

    Exits with 1 if any failed, else with 3 if any needs a person; with 130 after Ctrl-C.
    """
    parts = container.plan_parts
    interrupted = _work_on_all(container, plans, output, parallel)
    ended = [parts.lifecycle.reconciled(parts.plans.get(plan.id)) for plan in plans]
    if not interrupted and not only_review:
        ended = [_settled(parts, plan, yes=yes) for plan in ended]
    _tell(parts, ended, output)
    codes = [exit_code_of(parts, plan, only_review=only_review) for plan in ended]
    _tell_what_next(parts, ended, codes)
    code = INTERRUPTED if interrupted else joint_exit_code(codes)
    if code:
        raise click.exceptions.Exit(code)


def _work_on_all(container: Container, plans: Sequence[Plan], output: Output, parallel: int | None) -> bool:
    """Whether it was interrupted; when it returns, none of them is worked on here any more."""
    from cleveragents.plans.jobs.names import kind_of_plan

    def hire(board: Board) -> AsyncWorker:
        for plan in plans:
            board.view_of(plan).say(f"plan {plan.id}: {goal_of(plan)}")
        handler = handler_of(container, board)
        handlers = {kind_of_plan(plan.id): handler for plan in plans}
        return container.worker(handlers, name=f"run-{os.getpid()}", concurrency=parallel)

    return run_in_front(container, plans, partial(board_for, container, plans, output), hire)


def _settled(parts: PlanParts, plan: Plan, *, yes: bool) -> Plan:
    """The plan, applied if that needs no question; what stands in the way is said, and no more."""
    if plan.standing != (Phase.EXECUTE, PlanState.COMPLETE) or not changes_of(parts, plan):
        return plan
    below = _Below(f"plan {plan.id}: {goal_of(plan)}")
    try:
        if is_to_be_applied(parts, plan, yes=yes, commit=None, tell=below.tell):
            below.head()
            apply_now(parts, plan, None)
    except CleverAgentsError as error:
        below.tell(redact_text(str(error)))
    return parts.plans.get(plan.id)


class _Below:
    """What is said below a heading; nothing said, no heading. Not thread-safe: one plan after another."""

    def __init__(self, heading: str) -> None:
        self._heading: str | None = heading

    def head(self) -> None:
        heading, self._heading = self._heading, None
        if heading is not None:
            progress(heading)

    def tell(self, message: str) -> None:
        self.head()
        progress(message)


def _tell(parts: PlanParts, plans: Sequence[Plan], output: Output) -> None:
    if output.for_programs:
        output.table([account_of(parts, plan) for plan in plans], [], empty="")
        return
    shorts = short_ids([plan.id for plan in plans])
    rows: list[dict[str, JsonValue]] = [
        {
            "plan": shorts[plan.id] if output.for_eyes else plan.id,
            "state": meaning_of(parts, plan),
            "files": len(changes_of(parts, plan)),
            "tokens": spending_of(parts, plan).get("tokens"),
            "goal": goal_of(plan),
        }
        for plan in plans
    ]
    output.table(
        rows,
        ["plan", "state", "files", "tokens", "goal"],
        empty="",
        cut=["goal", "state"],
        spare=["tokens", "files"],
    )


def _tell_what_next(parts: PlanParts, plans: Sequence[Plan], codes: Sequence[int]) -> None:
    for plan, code in zip(plans, codes, strict=True):
        if code == NEEDS_HUMAN:
            for one in who_needs_somebody(parts, plan) or [plan]:
                progress(f"plan {one.id} needs you: {title_of(one)}")
                told_next(parts, one)
        elif code:
            progress(f"plan {plan.id}: {redact_text(plan.error or 'it failed')}")
            told_next(parts, plan)
