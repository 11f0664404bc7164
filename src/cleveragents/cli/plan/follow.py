"""Follows plans until nobody works at them: shows what they say and print, and stops them on Ctrl-C.

A plan that the command line made runs here, in front. Any other is run by workers, here or on a server, and
shown as they keep what it prints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import click

from cleveragents.api.events import EventView
from cleveragents.api.format import on_one_line
from cleveragents.api.plans.streams import plan_stream
from cleveragents.api.plans.views import OutputView, PlanSummary, PlanView, SubPlanNode
from cleveragents.api.views import every
from cleveragents.cli.output import Output, counted, progress
from cleveragents.cli.plan.exit_codes import INTERRUPTED
from cleveragents.cli.plan.meter import ViewMeter, plan_of
from cleveragents.cli.render.board import board_of
from cleveragents.cli.render.live_view import is_for_terminal
from cleveragents.cli.render.output_view import PlanOutputView
from cleveragents.cli.run.foreground import end_unless_cancelled
from cleveragents.cli.run.interruption import STOPPING, left_running_message
from cleveragents.core.errors import Conflict, PlanError, ServerFailed, UnknownPlan

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
_JOB_ENDS = ("job.succeeded", "job.failed", "job.cancelled")
_LOOK_SECONDS = 1.0
_LEAVES = "leaves it to the server"
_OTHERWISE = (404, 409)
"""What HTTP says where the plan is not as it was thought to be."""

Hear: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A place in the log, and in what some plans printed: what comes after it is new."""

    position: int
    numbers: Mapping[str, int]


def current_position(client: Client, plan: PlanView | None = None) -> StreamPosition:
    """This one, to be taken before anything is asked for; of a `plan` that has begun, with what it has
    printed."""
    found = client.events.list(limit=1).items
    numbers: dict[str, int] = {}
    for plan_id in [] if plan is None else [plan.id, *_below(client, plan)]:
        while pieces := client.plans.output(plan_id, after=numbers.get(plan_id, 0)):
            numbers[plan_id] = pieces[-1].number
    return StreamPosition(found[-1].position if found else 0, numbers)


class BackgroundRunner(Protocol):
    """Who goes on with plans of this machine, by themselves."""

    def is_kept_by(self, plan: PlanSummary) -> bool:
        """Whether a process may still go on with it, though no job of it runs."""

    def is_gone(self, plan: PlanView) -> bool:
        """Whether nobody works at it, and nobody is there to go on with it."""


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
    """The plan, when nobody works at it. Ctrl-C has its workers stop it, and that is waited for; a second one
    leaves it to them. Exits with 130 where that came too late for a cancel. `quiet`: its goal is not said
    again. `at_it` says who goes on with it."""
    following = PlansFollower(client, [plan], output, after=after, hear=hear, at_it=at_it)
    try:
        if not quiet:
            following.say(plan.id, f"plan {plan.id}: {on_one_line(plan.goal)}")
        return following.to_rest()[0]
    except KeyboardInterrupt:
        stopped = following.stopped(prefix)[0]
        following.close()
        end_unless_cancelled(stopped)
        return stopped
    finally:
        following.close()


class PlansFollower:
    """What is shown of some plans and of those below them; `hear` gets each line that they say of themselves.
    Not thread-safe: who watches asks."""

    def __init__(
        self,
        client: Client,
        plans: Sequence[PlanView],
        output: Output,
        *,
        after: StreamPosition,
        standings: bool = False,
        alone: bool = True,
        hint: str = "Ctrl-C stops it",
        hear: Hear | None = None,
        at_it: BackgroundRunner | None = None,
    ) -> None:
        self._client = client
        self._hear = hear
        self._at_it = at_it
        self._stream = plan_stream(client, after.position)
        self._after = after
        self._standings = standings
        self._said_standings: dict[str, str] = {}
        self._counts_money = is_for_terminal(output)
        self._meters: dict[str, ViewMeter] = {}
        self._looked_at: dict[str, float] = {}
        self._left: dict[str, None] = {}
        # The board reads this very list: whoever comes later is shown, too.
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
        """One more is followed, from now on."""
        meter = ViewMeter(plan)
        self._drawn.append(meter)
        self._follow(plan, meter)

    def say(self, plan_id: str, message: str) -> None:
        """About one of the plans."""
        self._view.say(plan_id, message)

    def close(self) -> None:
        """Nothing more is shown. A second call changes nothing."""
        self._view.close()
        _tell_waits(self._client, progress)

    def to_rest(self, *, rested: Callable[[], None] | None = None) -> list[PlanView]:
        """The plans, when nobody works at any of them; whenever one has come to rest, `rested` may add
        another."""
        self._left = dict.fromkeys(self._meters)
        self._show_kept()
        for meter in self._meters.values():
            plan = meter.last.plan
            self._say_standing(plan.id, plan.phase.value, plan.state.value)
        for asked in self._news():
            for plan_id in [one for one in self._left if asked is None or one == asked]:
                # guard: looked at twice, because it may have moved between the plan and its job
                if (self._rests(plan_id) and self._rests(plan_id)) or self._is_given_up(plan_id):
                    del self._left[plan_id]
                    if rested is not None:
                        rested()
            if not self._left:
                break
        self._show_rest()
        plans = [self._looked(plan_id) for plan_id in self._meters]
        for one in plans:  # it may have come to rest before all was heard of it
            self._say_standing(one.id, one.phase.value, one.state.value)
        return plans

    def to_end_of(self, job_id: str) -> PlanView:
        """The only plan, when that job of it has ended."""
        (plan_id,) = self._meters
        for _ in self._news():
            if self._is_over(job_id):
                break
        self._show_rest()
        return self._looked(plan_id)

    def stopped(self, prefix: str) -> list[PlanView]:
        """The plans, when all of them that run are stopped; Ctrl-C leaves that to their workers. One that is
        not stopped, such as one that is being applied, comes to rest by itself, and why is said."""
        names = list(self._meters)
        told: set[str] = set()
        resting: set[str] = set()
        refused: dict[str, str] = {}
        try:
            for plan_id in names:
                plan = self._client.plans.summary(plan_id)
                if plan.at_rest and not plan.waits_for_sub_plans:
                    resting.add(plan_id)
                elif (why := self._refusal(plan_id)) is None:
                    told.add(plan_id)
                else:
                    refused[plan_id] = why
            # Said afterwards: who does not read it must not keep the worker from hearing of it.
            if told:
                what = "the plan" if len(names) == 1 else counted(len(told), "plan")
                self._board.say(f"{STOPPING} {what} … (Ctrl-C again {_LEAVES})")
            for why in refused.values():
                self._board.say(why)
            return self.to_rest()
        except KeyboardInterrupt:
            self.close()
            for plan_id in names:
                if plan_id in refused:
                    progress(on_server(plan_id, prefix))
                elif plan_id not in resting:
                    progress(left_running_message(plan_id, prefix, told=plan_id in told))
            raise click.exceptions.Exit(INTERRUPTED) from None

    def _say_standing(self, plan_id: str, phase: str, state: str) -> None:
        """Says where the plan stands, unless that was said last."""
        phase_state = f"{phase}/{state}"
        if self._standings and self._said_standings.get(plan_id) != phase_state:
            self._said_standings[plan_id] = phase_state
            self.say(plan_id, phase_state)

    def _refusal(self, plan_id: str) -> str | None:
        """Has it cancelled; why it is not, where that is about this plan alone."""
        try:
            self._client.plans.cancel(plan_id, reason="interrupted by the user")
        except (Conflict, PlanError, UnknownPlan) as said:  # it is being applied, or has just ended
            return str(said)
        except ServerFailed as said:
            if said.status not in _OTHERWISE:
                raise
            return str(said)
        return None

    def _follow(self, plan: PlanView, meter: ViewMeter) -> None:
        self._meters[plan.id] = meter
        self._left[plan.id] = None
        self._listen(plan, plan.id)
        for plan_id in _below(self._client, plan):
            self._listen(self._client.plans.get(plan_id), plan.id)

    def _news(self) -> Iterator[str | None]:
        """Whenever there is reason to look: the plan that something happened to, or None for all of them.
        What is printed meanwhile is shown."""
        yield None
        for news in self._stream.news():
            if news is None:
                yield None
            elif isinstance(news, OutputView):
                self._show(news)
            else:
                yield from self._heard(news)

    def _heard(self, event: EventView) -> Iterator[str]:
        """The plan that is to be looked at because of an event, if any is."""
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
            self._say_standing(event.subject, facts["phase"], facts["state"])
            if facts["state"] not in _RUNNING:
                yield root
        elif event.type == "model_call.ended" and self._counts_money and self._is_due(root):
            self._looked(root)  # for what it costs, which events do not say

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
        # A worker that is done with it may still be about to apply it.
        return plan.at_rest and (plan.job is None or self._is_over(plan.job))

    def _is_given_up(self, plan_id: str) -> bool:
        """Whether nobody works at it, and nobody is there to go on with it."""
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
        """What was printed last may be kept a moment later than the plan came to rest; and it may have come
        to rest before all was heard of it."""
        after: int | None = self._stream.position
        while after is not None:
            page = self._client.events.list(after=after, event_type="plan.created")
            for event in page.items:
                self._join(event.subject, event.facts)
            after = page.next
        self._show_kept()


def on_server(plan_id: str, prefix: str) -> str:
    """What is true of a plan that goes on there, whatever becomes of the command that began it."""
    return f"plan {plan_id} is on the server; `{prefix} plan show {plan_id}` says more"


def _tell_waits(client: Client, tell: Callable[[str], None]) -> None:
    """Has a client that waits for its server say so there."""
    from cleveragents.api.client import HttpClient

    if isinstance(client, HttpClient):
        client.http.tell = tell


def _below(client: Client, plan: PlanView) -> list[str]:
    """The plans below it, each after its parent."""
    if not any(row.id for row in plan.sub_plans):
        return []
    nodes = every(lambda after: client.plans.decisions(plan.id, after=after))
    return [node.id for node in nodes if isinstance(node, SubPlanNode) and node.id is not None]


def _knows(meter: ViewMeter, plan_id: str) -> bool:
    return any(one.plan.id == plan_id for one in (meter.last, *meter.below))
