"""`agents plan watch`: what a plan does that runs elsewhere, from its records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from cleveragents.domain.plan import Phase, PlanState, spelt
from cleveragents.domain.progress import Progress, ProgressKind
from cleveragents.domain.redaction import redact_text
from cleveragents.interfaces.cli.background import is_in_background
from cleveragents.interfaces.cli.live_view import LiveView, view_for
from cleveragents.interfaces.cli.output import Output, format_option, progress
from cleveragents.interfaces.cli.plan_account import spelt_arguments, told_changes, told_plan
from cleveragents.interfaces.cli.plan_outcome import exit_code_of
from cleveragents.interfaces.cli.plan_view import found_plan, plan_argument, told_next
from cleveragents.interfaces.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.domain.plan import Plan
    from cleveragents.domain.tool import ToolCall

__all__ = ["watch_plan"]

_LOOK_SECONDS = 0.3
_TRY_AGAIN = 75


@click.command("watch")
@plan_argument
@format_option
@pass_session
def watch_plan(session: Session, plan_id: str, output: Output) -> None:
    """Follow a plan that runs elsewhere, until it ends or needs somebody; the exit code is that of `run`.

    Ctrl-C ends the watching, not the plan.

    \b
    Example:
      agents plan watch 7QX2
    """
    container = session.container()
    parts = container.plan_parts
    plan = found_plan(parts, plan_id)
    view = view_for(container, plan, output, hint="Ctrl-C ends the watching, not the plan")
    try:
        view.say(f"plan {plan.id}: {redact_text(plan.goal)}")
        plan = _followed(container, plan, view)
    except KeyboardInterrupt:
        view.close()
        progress(f"the plan goes on; `agents plan cancel {plan.id}` stops it")
        raise
    finally:
        view.close()
    if plan.state.running:
        progress("nobody works on it at present")
    elif plan.standing == (Phase.EXECUTE, PlanState.COMPLETE):
        told_changes(parts, plan)
    elif plan.state is not PlanState.APPLIED and (why := _reason(plan)):
        progress(why)
    told_next(parts, plan)
    told_plan(output, parts, plan)
    code = _TRY_AGAIN if plan.state.running else exit_code_of(parts, plan)
    if code:
        raise click.exceptions.Exit(code)


def _followed(container: Container, plan: Plan, view: LiveView) -> Plan:
    """The plan, when it has ended, needs a person, or nobody has worked on it for a while."""
    parts = container.plan_parts
    seen = _Seen(parts, view)
    alone_since: float | None = None
    while True:
        in_background = is_in_background(container.state_directory, plan.id)
        plan = found_plan(parts, plan.id)
        seen.look(plan)
        if not plan.state.running and not (plan.state is PlanState.COMPLETE and in_background):
            return plan
        now = container.clock.monotonic()
        if in_background or plan.phase is Phase.APPLY or parts.lifecycle.is_worked_on(plan):
            alone_since = None
        elif alone_since is None:
            alone_since = now
        elif now - alone_since > container.settings.worker.lease_seconds:
            return plan
        time.sleep(_LOOK_SECONDS)


def _reason(plan: Plan) -> str | None:
    """Why it stands where it does, if it has a reason."""
    if plan.state is PlanState.WAITING:
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        return f"it waits: {waiting.get('what')}"
    if plan.error is None:
        return None
    return f"it failed: {plan.error}" if plan.state is PlanState.ERRORED else plan.error


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
        """Shows what is new."""
        for call in self._parts.history.calls(plan.id):
            self._call(call)
        thoughts = self._parts.thinking.budgets.calls_of(plan.id)
        for thought in thoughts[self._thoughts :]:
            self._view.seen(Progress(ProgressKind.THINKING, thought.actor, thought.node, thought.model))
        self._thoughts = len(thoughts)
        checks = self._parts.check_runs.of_plan(plan.id)
        for check in checks[self._checks :]:
            self._view.say(f"check {check.name}: {check.verdict.value}")
        self._checks = len(checks)
        if spelt(plan.standing) != self._standing:
            self._standing = spelt(plan.standing)
            self._view.say(self._standing)

    def _call(self, call: ToolCall) -> None:
        """Once when it begins, and once when it has ended."""
        told = self._calls.get(call.number)
        if told is None:
            text = f"{call.tool} {spelt_arguments(call.arguments)}"
            self._view.seen(Progress(ProgressKind.TOOL, call.tool, call.step or "", text))
        ended = call.ended_at is not None
        if ended and not told:
            done = Progress(
                ProgressKind.TOOL_DONE,
                call.tool,
                call.step or "",
                call.error or "",
                failed=call.error is not None,
            )
            self._view.seen(done)
        self._calls[call.number] = ended
