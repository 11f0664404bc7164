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

from cleveragents.application.services.plan_family import below, who_needs_somebody
from cleveragents.application.services.plan_jobs import is_to_be_run
from cleveragents.application.services.plan_lanes import home_queue
from cleveragents.domain.project import ResourceKind
from cleveragents.domain.sub_plan import waits_for_sub_plans
from cleveragents.errors import PlanError
from cleveragents.interfaces.cli.board import board_of
from cleveragents.interfaces.cli.foreground import end_unless_cancelled
from cleveragents.interfaces.cli.interruption import STOPPING, left_to_server
from cleveragents.interfaces.cli.output import progress
from cleveragents.interfaces.cli.pieces_view import PiecesView
from cleveragents.interfaces.cli.plan_outcome import INTERRUPTED
from cleveragents.interfaces.desk.accounts import fields_of, found_plan
from cleveragents.interfaces.desk.meanings import goal_of

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.plan_parts import PlanParts
    from cleveragents.application.ports.plan_output import PlanOutput
    from cleveragents.domain.plan import Plan
    from cleveragents.interfaces.cli.output import Output
    from cleveragents.interfaces.cli.run_plans import Handling
    from cleveragents.interfaces.desk.requests import Wanted

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
    from cleveragents.errors import SandboxRefused
    from cleveragents.infrastructure.sandbox.resources import find_resource
    from cleveragents.interfaces.server.server_file import running_server

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
    from cleveragents.interfaces.cli.usage import as_usage
    from cleveragents.interfaces.desk.server_requests import Asked, shared_plan

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
    from cleveragents.interfaces.cli.plan_meter import PlanMeter

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
        from cleveragents.interfaces.server.server_file import running_server

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
    from cleveragents.infrastructure.home import home_id

    home = home_id(container.state_directory)
    return any(
        (worker.home, worker.pid, worker.state) == (home, pid, "working")
        and home_queue(home) in worker.queue.split(",")
        for worker in container.worker_registry.list()
    )


def _output_of(container: Container) -> PlanOutput:
    from cleveragents.infrastructure.persistence.sql_plan_output import SqlPlanOutput

    return SqlPlanOutput(container.database)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"  # a number without a name, as in a bare container
