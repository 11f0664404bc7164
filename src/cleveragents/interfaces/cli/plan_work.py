"""Runs a plan in the foreground: its job, what it says meanwhile, the questions it asks, what comes of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from cleveragents.domain.plan import Phase, Plan, PlanState
from cleveragents.errors import Cancelled, JobAlreadyEnded, NeedsHuman, PlanFailed
from cleveragents.interfaces.cli.output import colour, progress
from cleveragents.interfaces.cli.plan_view import shown_diff, summary_of, told_next

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.application.ports.applies import CommitRequest

__all__ = ["LiveOutput", "apply_now", "decide", "interactive", "work_on"]

_FOREVER = 30 * 24 * 3600.0
_END_SECONDS = 30.0
_LONGEST_LINE = 4096


def interactive() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def work_on(container: Container, plan: Plan) -> Plan:
    """The plan, once its job is over. Ctrl-C cancels it, and its processes are gone when this returns."""
    from cleveragents.application.services.job_handlers import JobHandler
    from cleveragents.application.services.plan_run import kind_of_plan

    parts = container.plan_parts
    handler = JobHandler(run=parts.run(progress=progress, on_output=LiveOutput()))
    worker = container.worker({kind_of_plan(plan.id): handler}, name=f"run-{os.getpid()}")
    worker.start()
    try:
        worker.run_until_idle(_FOREVER)
    except KeyboardInterrupt:
        progress("interrupted: stopping the plan …")
        with suppress(JobAlreadyEnded):
            worker.cancel(str(parts.plans.get(plan.id).job_id), "interrupted by the user")
        worker.run_until_idle(_END_SECONDS)
    return parts.lifecycle.reconciled(parts.plans.get(plan.id))


def decide(
    container: Container, plan: Plan, *, yes: bool, commit: CommitRequest | None, only_review: bool = False
) -> Plan:
    """Takes a plan from where its job left it to where the user wants it, asking on a terminal.

    `NeedsHuman` where somebody would have to be asked and nobody is there; `PlanFailed`, `Cancelled`.
    """
    while plan.state is PlanState.WAITING:
        plan = _answered(container, plan)
    if plan.state is PlanState.CANCELLED:
        raise Cancelled(plan.error)
    if plan.state is PlanState.ERRORED:
        progress(f"its sandbox is kept; `agents plan log {plan.id}` says what it did")
        raise PlanFailed(plan.id, plan.error or "it says no more")
    if plan.standing != (Phase.EXECUTE, PlanState.COMPLETE):
        return plan
    if only_review:
        progress(summary_of(container.plan_parts, plan))
        told_next(plan)
        return plan
    return _applied_or_not(container.plan_parts, plan, yes=yes, commit=commit)


def apply_now(parts: PlanParts, plan: Plan, commit: CommitRequest | None) -> Plan:
    """The plan, applied; what stands in the way is shown before it is raised."""
    from cleveragents.application.services.async_worker import CancellationToken
    from cleveragents.errors import ApplyConflict

    token = CancellationToken()
    try:
        plan, applied = parts.apply.apply(plan, token, commit=commit, told=progress)
    except ApplyConflict as conflict:
        for line in conflict.details.splitlines():
            progress(line)
        raise
    undo = f"`agents plan undo {plan.id}` takes it back"
    progress(f"applied {_files(len(applied.changes))} to {plan.resource}; {undo}")
    if applied.commit is not None:
        progress(f"committed as {applied.commit}")
    return plan


def _applied_or_not(parts: PlanParts, plan: Plan, *, yes: bool, commit: CommitRequest | None) -> Plan:
    from cleveragents.domain.policy import Capability, Verdict
    from cleveragents.domain.strategy import Strategy

    summary = summary_of(parts, plan)
    progress(summary)
    if not parts.result.states(plan, parts.sandboxes.open(plan.id)):
        return plan
    allowed = Strategy.from_json(plan.strategy).policy.verdict(Capability.APPLY) is Verdict.ALLOW
    if yes or allowed:
        return apply_now(parts, plan, commit)
    if not interactive():
        told_next(plan)
        what = f"its result is not applied yet ({summary})"
        raise NeedsHuman(plan.id, what, f"`agents plan apply {plan.id}` applies it")
    return _asked(parts, plan, commit)


def _asked(parts: PlanParts, plan: Plan, commit: CommitRequest | None) -> Plan:
    while True:
        answer = click.prompt(
            "Apply it? [y]es, [n]ot now, show the [d]iff, [r]eject it",
            type=click.Choice(["y", "n", "d", "r"]),
            show_choices=False,
            err=True,
        )
        if answer == "y":
            return apply_now(parts, plan, commit)
        if answer == "r":
            return parts.lifecycle.reject(plan)
        if answer == "n":
            told_next(plan)
            return plan
        options = ("--color=always",) if colour() is None else ()
        shown_diff(parts.result.diff(plan, parts.sandboxes.open(plan.id), options=options))


def _answered(container: Container, plan: Plan) -> Plan:
    parts = container.plan_parts
    waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    call = parts.lifecycle.asking(plan)
    if call is None or not interactive():
        raise NeedsHuman(plan.id, str(waiting.get("what")), str(waiting.get("remedy")))
    progress(f"{waiting.get('what')}: {dict(call.arguments)}")
    granted = click.confirm("Allow it?", err=True)
    return work_on(container, parts.lifecycle.answer(plan, granted))


class LiveOutput:
    """What a command prints, line by line on stderr, with its control characters spelt out.

    Not thread-safe: one command at a time feeds it.
    """

    def __init__(self) -> None:
        self._rest = b""

    def __call__(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            progress(f"  {line.decode('utf-8', 'backslashreplace').rstrip(chr(13))}")


def _files(number: int) -> str:
    return "1 file" if number == 1 else f"{number} files"
