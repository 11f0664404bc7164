"""Follow a turn in the terminal: its progress, its answer, and the plans that it started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.client import LocalClient
from cleveragents.cli.output import Styled, progress, write
from cleveragents.core.errors import CleverAgentsError

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.conversations.client import TurnView

__all__ = ["follow_turn", "run_plans"]

_STOP_SECONDS = 60.0
_MODEL, _PROGRESS = "model", "progress"


def follow_turn(client: Client, session_id: str, *, streamed: bool, quiet: bool = False) -> TurnView:
    """Follow the running turn to its end and return it.

    With `streamed`, the answer is printed to stdout as it arrives. Progress goes to stderr if stderr is a
    terminal and `quiet` is not set. Ctrl-C stops the turn, keeps the session, starts the plans of the turn,
    and raises `KeyboardInterrupt`.
    """
    conversations = client.conversations
    shows = sys.stderr.isatty() and not quiet
    try:
        for piece in conversations.watch(session_id):
            if piece.kind == _MODEL and streamed:
                write(piece.text, end="")
                sys.stdout.flush()
            elif piece.kind == _PROGRESS and shows:
                write(Styled(piece.text.rstrip("\n"), dim=True), err=True)
        return conversations.wait(session_id)
    except KeyboardInterrupt:
        conversations.stop(session_id)
        run_plans(client, conversations.wait(session_id, timeout=_STOP_SECONDS).plans)
        raise


def run_plans(client: Client, plan_ids: Sequence[str], *, report: bool = True) -> None:
    """Start the plans of this machine that no process runs. Each gets a separate process, which outlives the
    session. Print the started plans; with `report`, print all plans.
    """
    for plan_id in plan_ids:
        try:
            plan = client.plans.summary(plan_id)
            started = isinstance(client, LocalClient) and not plan.at_rest and _start(client, plan.id)
        except CleverAgentsError as error:
            if report:
                progress(f"plan {plan_id}: {error}")
            continue
        if started:
            progress(f"plan {plan.id} runs in the background: {plan.goal}")
            progress(f"  agents plan pause {plan.id}  pause the plan")
        elif report:
            progress(f"plan {plan.id} is {plan.status.value}: {plan.goal}")
        if started or report:
            progress(f"  agents plan watch {plan.id}  follow the plan")


def _start(client: LocalClient, plan_id: str) -> bool:
    """Start a process for the plan, unless a worker or another process runs it. Return whether a process was
    started.
    """
    from cleveragents.cli.run.background import start_in_background
    from cleveragents.plans.background_logs import is_in_background
    from cleveragents.plans.jobs.names import queue_of
    from cleveragents.plans.model.usage_wait import waiting_process

    container = client.access.container
    plan = container.plan_parts.plans.get(plan_id)
    if queue_of(plan.request) or is_in_background(container.state_directory, plan.id):
        return False
    lifecycle = container.plan_parts.lifecycle
    waits = waiting_process(plan) is not None and not lifecycle.is_abandoned(plan)
    if waits or lifecycle.has_worker(plan):  # in another terminal
        return False
    overrides = click.get_current_context().find_root().params.get("overrides", ())
    start_in_background(container.state_directory, [plan], overrides, ["--review"])
    return True
