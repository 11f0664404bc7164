"""Plans that the server of this very state runs: `agents run` hands them over, and watches.

Both look into the same database, so nothing goes over HTTP. Only a server that lives, and works itself, gets
a plan: it holds a lock as long as it lives, and its worker has reported.
"""

from __future__ import annotations

import getpass
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.access.model.project import ResourceKind
from cleveragents.api.plans.account import fields_of, found_plan
from cleveragents.api.plans.meanings import goal_of
from cleveragents.cli.output import progress
from cleveragents.cli.plan.outcome import INTERRUPTED
from cleveragents.cli.render.board import board_of
from cleveragents.cli.render.pieces_view import PiecesView
from cleveragents.cli.run.foreground import end_unless_cancelled
from cleveragents.cli.run.interruption import STOPPING, left_to_server
from cleveragents.core.errors import PlanError
from cleveragents.plans.family import below, who_needs_somebody
from cleveragents.plans.jobs.names import home_queue, is_to_be_run
from cleveragents.plans.model.sub_plan import waits_for_sub_plans

if TYPE_CHECKING:
    from cleveragents.api.plans.requests import Wanted
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.cli.output import Output
    from cleveragents.cli.run.plans import Handling
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.ports.plans import PlanOutput

__all__ = ["Taker", "hand_over", "taker_here", "tell_handed_over", "watched"]

_LOOK_SECONDS = 0.2
_LEAVES = "leaves it to the server"
_PIECES = 500


@dataclass(frozen=True, slots=True)
class Taker:
    """The server that takes plans of this directory, and the resource by whose name it knows it."""

    url: str
    resource: str


def taker_here(container: Container) -> Taker | None:
    """Who takes a plan that is wanted in the current directory; None: it is run here."""
    from cleveragents.core.errors import SandboxRefused
    from cleveragents.sandboxes.resources import find_resource
    from cleveragents.server.server_file import running_server

    running = running_server(container.state_directory)
    if running is None or not _works(container, running.pid):  # guard: a dead server gets no plan
        return None
    with suppress(SandboxRefused):  # whoever makes the plan says it
        root, inside = find_resource(Path.cwd())
        known = [
            one.name
            for one in container.projects.resources()
            if one.kind is ResourceKind.DIRECTORY and one.location == str(root)
        ]
        # Below the root, commands of the plan begin where the user is, which only a run here does.
        if len(known) == 1 and not inside:
            return Taker(running.url, known[0])
    return None


def hand_over(container: Container, taker: Taker, wanted: Wanted, handling: Handling) -> Plan:
    """The plan, made and queued for the server."""
    from cleveragents.api.server_requests import Asked, shared_plan
    from cleveragents.cli.usage import as_usage

    # What is to be committed is applied here, where the message is known.
    decided = "review" if handling.only_review or handling.message is not None else None
    apply = "auto" if handling.yes and decided is None else decided
    with as_usage():
        plan = shared_plan(container, Asked(taker.resource, wanted, apply), by=_user())
    progress(f"the server at {taker.url} runs it; --here runs it in this terminal")
    return plan


def tell_handed_over(plan: Plan, taker: Taker, output: Output) -> None:
    """Which plan the server runs, and how it is followed."""
    progress(f"`agents plan watch {plan.id}` follows it")
    known = fields_of(plan)
    told = {"plan": plan.id, "goal": known["goal"], "state": known["state"]}
    output.record({**({"id": plan.id} if output.for_programs else {}), **told, "server": taker.url})


def watched(container: Container, plan: Plan, output: Output | None, *, begun: bool = False) -> Plan:
    """The plan, when nobody works at it any more. Ctrl-C cancels it, and that is waited for; a second one
    leaves it to the server. Exits with 130 where that came too late for a cancel. What was shown of one that
    is `begun` is not shown again."""
    from cleveragents.cli.plan.meter import PlanMeter

    board = board_of([PlanMeter(container.plan_parts, plan)], output, alone=True, last=_LEAVES)
    view = PiecesView(board, plan)
    watching = _Watching(container, view, plan, _output_of(container))
    try:
        if begun:
            watching.skip()
        else:
            view.say(plan.id, f"plan {plan.id}: {goal_of(plan)}")
        return watching.to_rest()
    except KeyboardInterrupt:
        stopped = _stopped(container, watching, plan)
        view.close()
        end_unless_cancelled(container.plan_parts, stopped)
        return stopped
    finally:
        view.close()


def _stopped(container: Container, watching: _Watching, plan: Plan) -> Plan:
    parts = container.plan_parts
    told = resting = False
    try:
        now = found_plan(parts, plan.id)
        resting = not (is_to_be_run(now) or now.state.running or waits_for_sub_plans(now))
        if not resting:
            try:
                parts.lifecycle.cancel(now, "interrupted by the user")
                told = True
                # Said afterwards: who does not read it must not keep the server from hearing of it.
                watching.say(f"{STOPPING} the plan … (Ctrl-C again {_LEAVES})")
            except PlanError as refused:  # it is being applied, or has just ended
                resting = True
                watching.say(str(refused))
        return watching.to_rest()
    except KeyboardInterrupt:
        watching.close()
        if not resting:
            progress(left_to_server(plan.id, "agents", told=told))
        raise click.exceptions.Exit(INTERRUPTED) from None


class _Watching:
    """What of a plan was shown so far. Not thread-safe: who watches looks."""

    def __init__(self, container: Container, view: PiecesView, plan: Plan, output: PlanOutput) -> None:
        self._container = container
        self._view = view
        self._plan_id = plan.id
        self._output = output
        self._numbers: dict[str, int] = {}

    def say(self, message: str) -> None:
        """About the plan itself."""
        self._view.say(self._plan_id, message)

    def close(self) -> None:
        """Nothing more is shown."""
        self._view.close()

    def skip(self) -> None:
        """What is there already is not shown."""
        parts = self._container.plan_parts
        for one in below(parts, found_plan(parts, self._plan_id)):
            self._view.add(one)
        for plan_id in self._view:
            while pieces := self._new_of(plan_id):
                self._numbers[plan_id] = pieces[-1][0]

    def to_rest(self) -> Plan:
        from cleveragents.server.server_file import running_server

        parts = self._container.plan_parts
        while True:
            lives = running_server(self._container.state_directory) is not None
            plan = found_plan(parts, self._plan_id)
            for one in below(parts, plan):
                self._view.add(one)
            self._show()
            if _rests(parts, plan):
                return plan
            if not lives and not parts.lifecycle.is_worked_on(plan):
                self.say("the server has gone; the next one goes on with it")
                return plan
            time.sleep(_LOOK_SECONDS)

    def _show(self) -> None:
        for plan_id in self._view:
            for number, kind, text in self._new_of(plan_id):
                self._numbers[plan_id] = number
                self._view.show(plan_id, kind, text)

    def _new_of(self, plan_id: str) -> list[tuple[int, str, str]]:
        found = self._output.read(plan_id, after=self._numbers.get(plan_id, 0), limit=_PIECES)
        return [(piece.number, piece.kind, piece.text) for piece in found]


def _rests(parts: PlanParts, plan: Plan) -> bool:
    """Whether it does not go on by itself: its worker may still be about to apply it."""
    if is_to_be_run(plan) or plan.state.running:
        return False
    if waits_for_sub_plans(plan) and not who_needs_somebody(parts, plan):
        return not any(one.state.running for one in below(parts, plan))
    job = parts.lifecycle.queueing.job_of(plan)
    return job is None or job.state.ended


def _works(container: Container, pid: int) -> bool:
    from cleveragents.storage.home import home_id

    home = home_id(container.state_directory)
    return any(
        (worker.home, worker.pid, worker.state) == (home, pid, "working")
        and home_queue(home) in worker.queue.split(",")
        for worker in container.worker_registry.list()
    )


def _output_of(container: Container) -> PlanOutput:
    from cleveragents.plans.store.sql_plan_output import SqlPlanOutput

    return SqlPlanOutput(container.database)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"  # a number without a name, as in a bare container
