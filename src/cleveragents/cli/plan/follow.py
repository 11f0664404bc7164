"""Followers of plans that workers run: they show progress and output, and pause the plans on Ctrl-C.

A plan of this command runs in the foreground. Workers, here or on a server, run all others; their recorded
output is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import click

from cleveragents.api.events import EventView
from cleveragents.api.format import on_one_line
from cleveragents.api.plans.detail_views import OutputView, SubPlanNode
from cleveragents.api.plans.streams import plan_stream
from cleveragents.api.plans.summary import PlanSummary
from cleveragents.api.plans.views import PlanView
from cleveragents.api.views import every
from cleveragents.cli.output import Output, counted, progress
from cleveragents.cli.plan.exit_codes import INTERRUPTED
from cleveragents.cli.plan.meter import ViewMeter, plan_of
from cleveragents.cli.render.board import board_of
from cleveragents.cli.render.live_view import is_for_terminal
from cleveragents.cli.render.output_view import PlanOutputView
from cleveragents.cli.run.foreground import end_interrupted
from cleveragents.cli.run.interruption import PAUSING, left_running_message, pause_unfollowed
from cleveragents.core.errors import Conflict, PlanError, ServerFailed, UnknownPlan
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus, status_of

if TYPE_CHECKING:
    from cleveragents.api.client import Client

__all__ = [
    "BackgroundRunner",
    "PlansFollower",
    "StreamPosition",
    "current_position",
    "on_server",
    "run_until_rest",
]

_RUNNING = ("queued", "processing")
_NEEDS_REASON = ("waiting", "complete", "errored")
"""States whose status depends on more than the event of the move."""
_JOB_ENDS = ("job.succeeded", "job.failed", "job.cancelled")
_LOOK_SECONDS = 1.0
_LEAVES = "leaves it to the server"
_NOT_FOUND, _MOVED = 404, 409
"""HTTP statuses of an unknown action, and of a plan that has moved."""

Hear: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A position in the event log and in the output of some plans. Everything after it counts as new."""

    position: int
    numbers: Mapping[str, int]


def current_position(client: Client, plan: PlanView | None = None) -> StreamPosition:
    """Return the current position; call it before a request. With a `plan` that has begun, its output up to
    now does not count as new.
    """
    found = client.events.list(limit=1).items
    numbers: dict[str, int] = {}
    for plan_id in [] if plan is None else [plan.id, *_below(client, plan)]:
        while pieces := client.plans.output(plan_id, after=numbers.get(plan_id, 0)):
            numbers[plan_id] = pieces[-1].number
    return StreamPosition(found[-1].position if found else 0, numbers)


class BackgroundRunner(Protocol):
    """Processes of this machine that continue plans on their own."""

    def is_kept_by(self, plan: PlanSummary) -> bool:
        """Return whether a process may continue the plan although none of its jobs runs."""

    def is_gone(self, plan: PlanView) -> bool:
        """Return whether no process works on the plan and none will continue it."""


def run_until_rest(
    client: Client,
    plan: PlanView,
    output: Output,
    *,
    after: StreamPosition,
    prefix: str,
    quiet: bool = False,
    hear: Hear | None = None,
    at_it: BackgroundRunner | None = None,
) -> PlanView:
    """Return the plan once no worker runs it.

    Ctrl-C asks the workers to pause the plan, waits for the pause, and exits with 130. A second Ctrl-C ends
    the wait. `quiet` omits the goal. `at_it` knows the processes that continue the plan.
    """
    try:
        following = PlansFollower(client, [plan], output, after=after, hear=hear, at_it=at_it)
    except KeyboardInterrupt:
        pause_unfollowed(client, plan.id, prefix)
        raise click.exceptions.Exit(INTERRUPTED) from None
    try:
        if not quiet:
            following.say(plan.id, f"plan {plan.id}: {on_one_line(plan.goal)}")
        return following.to_rest()[0]
    except KeyboardInterrupt:
        stopped = following.stopped(prefix)[0]
        following.close()
        end_interrupted(stopped)
        return stopped
    finally:
        following.close()


class _PauseRequests:
    """The outcomes of requests to pause plans: requests that the server received (`told`), requests that it
    `refused`, with the reason, plans that the server cannot pause (`lacking`), and plans at rest.

    Not thread-safe: use it in the thread that made it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.told: set[str] = set()
        self.resting: set[str] = set()
        self.refused: dict[str, str] = {}
        self.lacking: set[str] = set()

    def pause(self, plan_id: str) -> None:
        """Pause the plan unless it rests. A server of version 0.1.0 does not have this action."""
        plan = self._client.plans.summary(plan_id)
        if plan.at_rest and not plan.waits_for_sub_plans:
            self.resting.add(plan_id)
            return
        try:
            self._client.plans.pause(plan_id)
        except ServerFailed as said:
            if said.status == _NOT_FOUND:  # no reason to leave the other plans running
                self.lacking.add(plan_id)
            elif said.status == _MOVED:
                self.refused[plan_id] = str(said)
            else:
                raise
        except (Conflict, PlanError, UnknownPlan) as said:  # it is being applied, or has just ended
            self.refused[plan_id] = str(said)
        else:
            self.told.add(plan_id)

    def last_message(self, plan_id: str, prefix: str) -> str:
        """Return the message for a plan that does not rest when the command ends."""
        if plan_id in self.lacking:
            cancel = f"`{prefix} plan cancel {plan_id}`"
            return f"this server cannot pause plans: plan {plan_id} continues; {cancel} ends it"
        if plan_id in self.refused:
            return on_server(plan_id, prefix)
        return left_running_message(plan_id, prefix, told=plan_id in self.told)


class PlansFollower:
    """The display of some plans and their sub-plans; `hear` receives each progress line.

    Not thread-safe: use it in the thread that made it.
    """

    def __init__(
        self,
        client: Client,
        plans: Sequence[PlanView],
        output: Output,
        *,
        after: StreamPosition,
        statuses: bool = False,
        alone: bool = True,
        hint: str = "Ctrl-C pauses it",
        hear: Hear | None = None,
        at_it: BackgroundRunner | None = None,
    ) -> None:
        self._client = client
        self._hear = hear
        self._at_it = at_it
        self._stream = plan_stream(client, after.position)
        self._after = after
        self._statuses = statuses
        self._said_statuses: dict[str, PlanStatus] = {}
        self._counts_money = is_for_terminal(output)
        self._meters: dict[str, ViewMeter] = {}
        self._looked_at: dict[str, float] = {}
        self._left: dict[str, None] = {}
        # The board reads this list itself, so it also shows plans that are added later.
        self._drawn = [ViewMeter(plan) for plan in plans]
        self._board = board_of(self._drawn, output, alone=alone, hint=hint, last=_LEAVES)
        self._view = PlanOutputView(self._board)
        _tell_waits(client, self._board.say)
        try:
            for plan, meter in zip(plans, list(self._drawn), strict=True):
                self._follow(plan, meter)
        except BaseException:
            self.close()
            raise

    def add(self, plan: PlanView) -> None:
        """Follow one more plan from now on."""
        meter = ViewMeter(plan)
        self._drawn.append(meter)
        self._follow(plan, meter)

    def say(self, plan_id: str, message: str) -> None:
        """Print a line of one plan."""
        self._view.say(plan_id, message)

    def close(self) -> None:
        """Stop the display. A second call changes nothing."""
        self._view.close()
        _tell_waits(self._client, progress)

    def to_rest(self, *, rested: Callable[[], None] | None = None) -> list[PlanView]:
        """Return the plans once no worker runs any of them. `rested` is called whenever a plan comes to rest,
        and may add further plans.
        """
        self._left = dict.fromkeys(self._meters)
        running = [meter.last for meter in self._meters.values() if meter.last.plan.state.running]
        for reading in running:  # before the output, which belongs to this status or to a later one
            self._say_status(reading.plan.id, reading.status)
        if not running or not self._stream.in_order:
            self._show_kept()
        for plan_id, meter in self._meters.items():
            self._say_status(plan_id, meter.last.status)
        for asked in self._news():
            for plan_id in [one for one in self._left if asked is None or one == asked]:
                # guard: looked at twice, because it may move between reading the plan and reading its job
                if (self._rests(plan_id) and self._rests(plan_id)) or self._is_given_up(plan_id):
                    del self._left[plan_id]
                    if rested is not None:
                        rested()
            if not self._left:
                break
        self._show_rest()
        plans = [self._looked(plan_id) for plan_id in self._meters]
        for one in plans:  # a plan may come to rest before its last event arrives
            self._say_status(one.id, one.status)
        return plans

    def stopped(self, prefix: str) -> list[PlanView]:
        """Pause all running plans and return them once they have stopped; Ctrl-C ends the wait.

        A plan that cannot be paused, for example because it is being applied, comes to rest on its own; the
        reason is printed.
        """
        names = list(self._meters)
        asked = _PauseRequests(self._client)
        try:
            for plan_id in names:
                asked.pause(plan_id)
            # Printed after the requests: a reader that stalls must not delay the pause.
            if asked.told:
                what = "the plan" if len(names) == 1 else counted(len(asked.told), "plan")
                self._board.say(f"{PAUSING} {what} … (Ctrl-C again {_LEAVES})")
            for why in asked.refused.values():
                self._board.say(why)
            if not asked.lacking:
                return self.to_rest()
        except KeyboardInterrupt:
            pass  # the person does not wait for the pause
        self.close()
        for plan_id in [one for one in names if one not in asked.resting]:
            progress(asked.last_message(plan_id, prefix))
        raise click.exceptions.Exit(INTERRUPTED) from None

    def _say_status(self, plan_id: str, status: PlanStatus) -> None:
        """Print the status of the plan, unless it was the last printed status."""
        if self._statuses and self._said_statuses.get(plan_id) is not status:
            self._said_statuses[plan_id] = status
            self.say(plan_id, status.value)

    def _show_move(self, root: str, plan_id: str, facts: Mapping[str, Any]) -> None:
        """Show the status after a move. If the event alone does not determine the status, the plan is read.
        If the plan has moved again by then, its next event shows the status.
        """
        phase, state = Phase(facts["phase"]), PlanState(facts["state"])
        is_told = phase is Phase.STRATEGIZE and state is PlanState.COMPLETE
        if is_told or state.value not in _NEEDS_REASON:
            self._say_status(plan_id, status_of(phase, state))
        elif self._statuses or self._counts_money:
            plan = self._client.plans.get(plan_id)
            self._meters[root].take(plan)
            if (plan.phase, plan.state) == (phase, state):  # guard: a later status must not come first
                self._say_status(plan_id, plan.status)

    def _follow(self, plan: PlanView, meter: ViewMeter) -> None:
        self._meters[plan.id] = meter
        self._left[plan.id] = None
        self._listen(plan, plan.id)
        for plan_id in _below(self._client, plan):
            self._listen(self._client.plans.get(plan_id), plan.id)

    def _news(self) -> Iterator[str | None]:
        """Yield the plan to read after each event, or None if all plans must be read. Output is shown as it
        arrives.
        """
        yield None
        for news in self._stream.news():
            if news is None:
                yield None
            elif isinstance(news, OutputView):
                self._show(news)
            else:
                yield from self._heard(news)

    def _heard(self, event: EventView) -> Iterator[str]:
        """Yield the followed plan that must be read because of this event, if any."""
        facts = event.facts
        if event.type == "plan.created":
            self._join(event.subject, facts)
        elif event.type in _JOB_ENDS:
            of_plan = str(facts.get("kind")).partition(":")[2]
            if of_plan in self._meters:
                yield of_plan
        root = self._root_of(event.subject)
        if root is None:
            return
        self._meters[root].hear(event.type, event.subject, facts)
        if event.type == "plan.moved":
            self._show_move(root, event.subject, facts)
            if facts["state"] not in _RUNNING:
                yield root
        elif event.type == "model_call.ended" and self._counts_money and self._is_due(root):
            self._looked(root)  # for its cost, which events do not contain

    def _root_of(self, plan_id: str) -> str | None:
        return next((root for root, meter in self._meters.items() if _knows(meter, plan_id)), None)

    def _is_due(self, plan_id: str) -> bool:
        return time.monotonic() - self._looked_at.get(plan_id, 0.0) >= _LOOK_SECONDS

    def _join(self, plan_id: str, facts: Mapping[str, Any]) -> None:
        root = self._root_of(str(facts.get("parent")))
        if root is not None and plan_id not in self._view:
            self._listen(self._client.plans.get(plan_id), root)

    def _looked(self, plan_id: str) -> PlanView:
        plan = self._client.plans.get(plan_id)
        self._meters[plan_id].take(plan)
        self._looked_at[plan_id] = time.monotonic()
        return plan

    def _rests(self, plan_id: str) -> bool:
        plan = self._client.plans.summary(plan_id)
        if self._at_it is not None and self._at_it.is_kept_by(plan):
            return False
        if plan.waits_for_sub_plans and plan.needs is None:
            return not any(row.state in _RUNNING for row in self._client.plans.get(plan_id).sub_plans)
        # The worker may still be about to apply the result.
        return plan.at_rest and (plan.job is None or self._is_over(plan.job))

    def _is_given_up(self, plan_id: str) -> bool:
        """Return whether no process works on the plan and none will continue it."""
        if self._at_it is None or not self._is_due(plan_id):
            return False
        return self._at_it.is_gone(self._looked(plan_id))

    def _is_over(self, job_id: str) -> bool:
        return self._client.jobs.get(job_id).state.ended

    def _listen(self, plan: PlanView, root: str) -> None:
        self._meters[root].take(plan)
        self._view.add(plan_of(plan))
        self._stream.listen_to(plan.id, self._after.numbers.get(plan.id, 0))

    def _show(self, piece: OutputView) -> None:
        if self._hear is not None and piece.kind == "progress":
            for line in piece.text.splitlines():
                self._hear(line)
        self._view.show(piece.plan_id, piece.kind, piece.text)

    def _show_kept(self) -> None:
        for piece in self._stream.kept(self._view):
            self._show(piece)

    def _show_rest(self) -> None:
        """Show the output that was recorded after the plans came to rest, including that of sub-plans that
        were created last.
        """
        after: int | None = self._stream.position
        while after is not None:
            page = self._client.events.list(after=after, event_type="plan.created")
            for event in page.items:
                self._join(event.subject, event.facts)
            after = page.next
        self._show_kept()


def on_server(plan_id: str, prefix: str) -> str:
    """Return a hint for a plan that continues on the server after this command."""
    return f"plan {plan_id} is on the server; show it with `{prefix} plan show {plan_id}`"


def _tell_waits(client: Client, tell: Callable[[str], None]) -> None:
    """Make an HTTP client report to `tell` that it waits for its server."""
    from cleveragents.api.client import HttpClient

    if isinstance(client, HttpClient):
        client.http.tell = tell


def _below(client: Client, plan: PlanView) -> list[str]:
    """Return the ids of all sub-plans, each after its parent."""
    if not any(row.id for row in plan.sub_plans):
        return []
    nodes = every(lambda after: client.plans.decisions(plan.id, after=after))
    return [node.id for node in nodes if isinstance(node, SubPlanNode) and node.id is not None]


def _knows(meter: ViewMeter, plan_id: str) -> bool:
    return any(one.plan.id == plan_id for one in (meter.last, *meter.below))
