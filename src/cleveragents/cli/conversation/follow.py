"""Follow a turn in the terminal: its progress, its answer, and the plans that it started."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cleveragents.api.client import LocalClient
from cleveragents.cli.output import Styled, progress, write
from cleveragents.core.errors import CleverAgentsError

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.conversations.client import TurnView

__all__ = ["follow_turn", "run_started_plans"]

_STOP_SECONDS = 60.0
_MODEL, _PROGRESS = "model", "progress"


def follow_turn(client: Client, session_id: str, *, streamed: bool, quiet: bool = False) -> TurnView:
    """Follow the running turn to its end and return it.

    With `streamed`, the words of the model go to stdout as they arrive; else they are only in the turn.
    Progress goes to stderr, if that is a terminal and unless `quiet`. Ctrl-C stops the turn, keeps the
    session, and raises `KeyboardInterrupt`.
    """
    talks = client.conversations
    shows = sys.stderr.isatty() and not quiet
    try:
        for piece in talks.watch(session_id):
            if piece.kind == _MODEL and streamed:
                write(piece.text, end="")
                sys.stdout.flush()
            elif piece.kind == _PROGRESS and shows:
                write(Styled(piece.text.rstrip("\n"), dim=True), err=True)
        return talks.wait(session_id)
    except KeyboardInterrupt:
        talks.stop(session_id)
        talks.wait(session_id, timeout=_STOP_SECONDS)
        raise


def run_started_plans(client: Client, turn: TurnView) -> None:
    """Report the plans of a turn. Plans of this machine that no worker runs are started in a process of their
    own, which continues when the session ends.
    """
    for plan_id in turn.plans:
        try:
            plan = client.plans.summary(plan_id)
        except CleverAgentsError as error:
            progress(f"plan {plan_id}: {error}")
            continue
        if isinstance(client, LocalClient) and not plan.at_rest:
            _start(client, plan_id)
        progress(f"plan {plan.id}: {plan.goal}")
        progress(f"  agents plan watch {plan.id}  follow the plan")


def _start(client: LocalClient, plan_id: str) -> None:
    from cleveragents.cli.run.background import start_in_background
    from cleveragents.plans.background_logs import is_in_background
    from cleveragents.plans.jobs.names import queue_of

    container = client.access.container
    plan = container.plan_parts.plans.get(plan_id)
    if queue_of(plan.request) or is_in_background(container.state_directory, plan.id):
        return  # a worker, or the process that runs it already, continues it
    overrides = click.get_current_context().find_root().params.get("overrides", ())
    start_in_background(container.state_directory, [plan], overrides, ["--review"])
