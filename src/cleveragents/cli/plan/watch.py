"""`agents plan watch`: what a plan does that runs elsewhere, from its records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.api.plans.account import found_plan, spelt_arguments
from cleveragents.api.plans.meanings import goal_of
from cleveragents.cli.output import Output, format_option, progress
from cleveragents.cli.plan.account import told_changes, told_plan
from cleveragents.cli.plan.outcome import TRY_AGAIN, exit_code_of
from cleveragents.cli.plan.view import plan_argument, told_next, told_reason
from cleveragents.cli.render.board import Board, board_for
from cleveragents.cli.render.live_view import LiveView
from cleveragents.cli.session import Session, pass_session
from cleveragents.plans.background_logs import is_in_background
from cleveragents.plans.family import below, title_of, who_needs_somebody
from cleveragents.plans.model.plan import Phase, PlanState, spelt
from cleveragents.plans.model.sub_plan import waits_for_sub_plans

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["watch_plan"]

_News = tuple[datetime, Callable[[], None]]

_LOOK_SECONDS = 0.3


@click.command("watch")
@plan_argument
@format_option
@pass_session
def watch_plan(session: Session, plan_id: str, output: Output) -> None:
    """Follow a plan that runs elsewhere, until it ends or needs somebody; the exit code is that of `run`.

    It is 3 for any result that is yours to decide about, and 75 when nobody works on the plan.
    Ctrl-C ends the watching, not the plan.

    \b
    Example:
      agents plan watch 7QX2
    """
    container = session.container()
    parts = container.plan_parts
    plan = found_plan(parts, plan_id)
    hint = "Ctrl-C ends the watching, not the plan"
    board = board_for(container, [plan], output, alone=True, hint=hint)
    try:
        board.view_of(plan).say(f"plan {plan.id}: {goal_of(plan)}")
        plan = _followed(container, plan, board)
    except KeyboardInterrupt:
        board.close()
        progress(f"the plan goes on; `agents plan cancel {plan.id}` stops it")
        raise
    finally:
        board.close()
    if plan.state.running:
        progress("nobody works on it at present")
    elif plan.standing == (Phase.EXECUTE, PlanState.COMPLETE):
        told_changes(parts, plan)
    elif plan.state is not PlanState.APPLIED:
        told_reason(plan)
    told_next(parts, plan)
    for one in who_needs_somebody(parts, plan):
        if one.id != plan.id:
            progress(f"sub-plan {one.id} needs you: {title_of(one)}")
            told_reason(one)
            told_next(parts, one)
    told_plan(output, parts, plan)
    code = TRY_AGAIN if plan.state.running else exit_code_of(parts, plan)
    if code:
        raise click.exceptions.Exit(code)


def _followed(container: Container, plan: Plan, board: Board) -> Plan:
    """The plan, when it has ended, needs a person, or nobody has worked on it for a while."""
    parts = container.plan_parts
    seen: dict[str, _Seen] = {}
    alone_since: float | None = None
    while True:
        in_background = is_in_background(container.state_directory, plan.root)
        plan = found_plan(parts, plan.id)
        tree = [plan, *(parts.lifecycle.reconciled(one) for one in below(parts, plan))]
        for one in tree:
            seen.setdefault(one.id, _Seen(parts, board.view_of(one))).look(one)
        if not _goes_on(tree, in_background):
            return plan
        now = container.clock.monotonic()
        at_work = any(one.phase is Phase.APPLY or parts.lifecycle.is_worked_on(one) for one in tree)
        if in_background or at_work:
            alone_since = None
        elif alone_since is None:
            alone_since = now
        elif now - alone_since > container.settings.worker.lease_seconds:
            return plan
        time.sleep(_LOOK_SECONDS)


def _goes_on(tree: Sequence[Plan], in_background: bool) -> bool:
    """Whether the first of them will move by itself: one that waits for its sub-plans does while any of those
    is under way, or has just come to rest and wakes it."""
    plan = tree[0]
    if waits_for_sub_plans(plan):
        return in_background or any(one.state.running for one in tree[1:])
    return plan.state.running or (plan.state is PlanState.COMPLETE and in_background)


class _Seen:
    """What was shown of a plan so far. Not thread-safe: who watches looks."""

    def __init__(self, parts: PlanParts, view: LiveView) -> None:
        self._parts = parts
        self._view = view
        self._standing = ""
        self._calls: dict[int, bool] = {}
        self._thoughts = 0
        self._checks = 0

    def look(self, plan: Plan) -> None:
        """Shows what is new, in the order in which it happened."""
        news = [*self._of_calls(plan.id), *self._of_thoughts(plan.id), *self._of_checks(plan.id)]
        for _, tell in sorted(news, key=lambda one: one[0]):
            tell()
        if spelt(plan.standing) != self._standing:
            self._standing = spelt(plan.standing)
            self._view.say(self._standing)

    def _of_calls(self, plan_id: str) -> Iterator[_News]:
        """Once when it begins, and once when it has ended."""
        for call in self._parts.history.calls(plan_id):
            told = self._calls.get(call.number)
            if told is None:
                text = f"{call.tool} {spelt_arguments(call.arguments)}"
                yield call.started_at, self._progress(ProgressKind.TOOL, call.tool, call.step or "", text)
            if call.ended_at is not None and not told:
                error, failed = call.error or "", call.error is not None
                kind = ProgressKind.TOOL_DONE
                yield (
                    call.ended_at,
                    self._progress(kind, call.tool, call.step or "", error, failed=failed),
                )
            self._calls[call.number] = call.ended_at is not None

    def _of_thoughts(self, plan_id: str) -> Iterator[_News]:
        thoughts = self._parts.thinking.budgets.calls_of(plan_id)
        for thought in thoughts[self._thoughts :]:
            seen = self._progress(ProgressKind.THINKING, thought.actor, thought.node, thought.model)
            yield thought.started_at, seen
        self._thoughts = len(thoughts)

    def _of_checks(self, plan_id: str) -> Iterator[_News]:
        checks = self._parts.check_runs.of_plan(plan_id)
        for check in checks[self._checks :]:
            told = f"check {check.name}: {check.verdict.value.replace('_', ' ')}"
            yield check.ended_at, partial(self._view.say, told)
        self._checks = len(checks)

    def _progress(
        self, kind: ProgressKind, actor: str, node: str, text: str, *, failed: bool = False
    ) -> Callable[[], None]:
        return partial(self._view.seen, Progress(kind, actor, node, text, failed=failed))
