"""Follows plans that a server runs: shows what they say and print, until nobody works at them any more."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from cleveragents.api.event_stream import Follower, Frame
from cleveragents.api.wording import on_one_line
from cleveragents.cli.client.accounts import Account, is_running, tell_next, waited_for
from cleveragents.cli.client.problems import ServerSaid
from cleveragents.cli.client.served_plans import ServedMeter, plan_of
from cleveragents.cli.output import Output, counted, progress
from cleveragents.cli.plan.outcome import INTERRUPTED
from cleveragents.cli.render.board import board_of
from cleveragents.cli.render.live_view import is_for_terminal
from cleveragents.cli.render.pieces_view import PiecesView
from cleveragents.cli.run.interruption import STOPPING, left_to_server

if TYPE_CHECKING:
    from cleveragents.cli.client.server_client import ServerClient

__all__ = ["Moment", "PlansFollower", "moment_now", "on_server", "run_to_rest"]

_RUNNING = ("queued", "processing")
_OVER = ("succeeded", "failed", "cancelled")
_JOB_ENDS = tuple(f"job.{state}" for state in _OVER)
_SUB_PLANS = "sub-plans"
_LOOK_SECONDS = 1.0
_LEAVES = "leaves it to the server"
_OTHERWISE = (404, 409)
"""What HTTP says where the plan is not as it was thought to be."""

Hear: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Moment:
    """A place in the log, and in what some plans printed: what comes after it is new."""

    position: int
    numbers: Mapping[str, int]


def moment_now(client: ServerClient, account: Account | None = None) -> Moment:
    """This one, to be taken before anything is asked for; of a plan that has begun, with its `account`."""
    found = client.get("/events", limit=1)["items"]
    numbers: dict[str, int] = {}
    if account is not None:
        for plan_id in (account["id"], *_below(client, account)):
            for piece in client.pages(f"/plans/{plan_id}/output"):
                numbers[plan_id] = piece["number"]
    return Moment(int(found[-1]["position"]) if found else 0, numbers)


def run_to_rest(
    client: ServerClient,
    account: Account,
    output: Output,
    *,
    after: Moment,
    prefix: str,
    quiet: bool = False,
    hear: Hear | None = None,
) -> Account:
    """The plan, when nobody works at it. Ctrl-C has the server stop it, and that is waited for; a second one
    leaves it to the server. Exits with 130 where that came too late for a cancel. `quiet`: its goal is not
    said again."""
    following = PlansFollower(client, [account], output, after=after, hear=hear)
    plan_id: str = account["id"]
    try:
        if not quiet:
            following.say(plan_id, f"plan {plan_id}: {on_one_line(account['goal'])}")
        return following.to_rest()[0]
    except KeyboardInterrupt:
        stopped = following.stopped(prefix)[0]
        following.close()
        _end_unless_cancelled(stopped, prefix)
        return stopped
    finally:
        following.close()


class PlansFollower:
    """What is shown of some plans and of those below them; `hear` gets each line that they say of themselves.
    Not thread-safe: who watches asks."""

    def __init__(
        self,
        client: ServerClient,
        accounts: Sequence[Account],
        output: Output,
        *,
        after: Moment,
        standings: bool = False,
        alone: bool = True,
        hint: str = "Ctrl-C stops it",
        hear: Hear | None = None,
    ) -> None:
        self._client = client
        self._hear = hear
        self._follower = Follower(client, after.position)
        self._after = after
        self._standings = standings
        self._counts_money = is_for_terminal(output)
        self._accounts: dict[str, Account] = {}
        self._meters: dict[str, ServedMeter] = {}
        self._looked_at: dict[str, float] = {}
        self._left: dict[str, None] = {}
        # The board reads this very list: whoever comes later is shown, too.
        self._drawn = [ServedMeter(account) for account in accounts]
        self._board = board_of(self._drawn, output, alone=alone, hint=hint, last=_LEAVES)
        self._view = PiecesView(self._board)
        client.tell = self._board.say
        try:
            for account, meter in zip(accounts, list(self._drawn), strict=True):
                self._follow(account, meter)
        except BaseException:
            self.close()
            raise

    def add(self, account: Account) -> None:
        """One more is followed, from now on."""
        meter = ServedMeter(account)
        self._drawn.append(meter)
        self._follow(account, meter)

    def say(self, plan_id: str, message: str) -> None:
        """About one of the plans."""
        self._view.say(plan_id, message)

    def close(self) -> None:
        """Nothing more is shown. A second call changes nothing."""
        self._view.close()
        self._client.tell = progress

    def to_rest(self, *, rested: Callable[[], None] | None = None) -> list[Account]:
        """The accounts, when nobody works at any of the plans; whenever one has come to rest, `rested` may
        add another."""
        self._left = dict.fromkeys(self._accounts)
        self._show_kept()
        if self._standings:
            for account in self._accounts.values():
                self.say(account["id"], f"{account['phase']}/{account['state']}")
        for asked in self._news():
            for plan_id in [one for one in self._left if asked is None or one == asked]:
                # guard: looked at twice, because it may have moved between the plan and its job
                if self._rests(self._looked(plan_id)) and self._rests(self._looked(plan_id)):
                    del self._left[plan_id]
                    if rested is not None:
                        rested()
            if not self._left:
                break
        self._show_rest()
        return list(self._accounts.values())

    def to_end_of(self, job_id: str) -> Account:
        """The account of the only plan, when that job of it has ended."""
        (plan_id,) = self._accounts
        for _ in self._news():
            if self._is_over(job_id):
                break
        self._show_rest()
        return self._looked(plan_id)

    def stopped(self, prefix: str) -> list[Account]:
        """The accounts, when the server has stopped all of the plans that run; Ctrl-C leaves that to it. One
        that it does not stop, such as one that is being applied, comes to rest by itself, and why is said."""
        names = list(self._accounts)
        told: set[str] = set()
        resting: set[str] = set()
        refused: dict[str, str] = {}
        try:
            for plan_id in names:
                running = is_running(self._looked(plan_id))
                if not running and waited_for(self._accounts[plan_id]) != _SUB_PLANS:
                    resting.add(plan_id)
                elif (why := self._refusal(plan_id)) is None:
                    told.add(plan_id)
                else:
                    refused[plan_id] = why
            # Said afterwards: who does not read it must not keep the server from hearing of it.
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
                    progress(left_to_server(plan_id, prefix, told=plan_id in told))
            raise click.exceptions.Exit(INTERRUPTED) from None

    def _refusal(self, plan_id: str) -> str | None:
        """Has the server cancel it; why it does not, where that is about this plan alone."""
        try:
            self._client.post(f"/plans/{plan_id}/cancel", {"reason": "interrupted by the user"})
        except ServerSaid as said:
            if said.status not in _OTHERWISE:
                raise
            return said.message
        return None

    def _follow(self, account: Account, meter: ServedMeter) -> None:
        name: str = account["id"]
        self._accounts[name] = account
        self._meters[name] = meter
        self._left[name] = None
        self._listen(account, name)
        for plan_id in _below(self._client, account):
            self._listen(self._client.get(f"/plans/{plan_id}"), name)

    def _news(self) -> Iterator[str | None]:
        """Whenever there is reason to look: the plan that something happened to, or None for all of them.
        What is printed meanwhile is shown."""
        yield None
        for frame in self._follower.frames():
            if frame.kind == "output":
                self._show(frame.data)
            elif not frame.kind:
                yield None
            else:
                yield from self._heard(frame)

    def _heard(self, frame: Frame) -> Iterator[str]:
        """The plan that is to be looked at because of an event, if any is."""
        subject = str(frame.data.get("subject"))
        facts = frame.data.get("facts")
        facts = facts if isinstance(facts, dict) else {}
        if frame.kind == "plan.created":
            self._join(subject, facts)
        elif frame.kind in _JOB_ENDS:
            of_plan = str(facts.get("kind")).partition(":")[2]
            if of_plan in self._accounts:
                yield of_plan
        root = self._root_of(subject)
        if root is None:
            return
        self._meters[root].hear(frame.kind, subject, facts)
        if frame.kind == "plan.moved":
            if self._standings:
                self.say(subject, f"{facts['phase']}/{facts['state']}")
            if facts["state"] not in _RUNNING:
                yield root
        elif frame.kind == "model_call.ended" and self._counts_money and self._is_due(root):
            self._looked(root)  # for what it costs, which events do not say

    def _root_of(self, plan_id: str) -> str | None:
        return next((root for root, meter in self._meters.items() if _knows(meter, plan_id)), None)

    def _is_due(self, plan_id: str) -> bool:
        return time.monotonic() - self._looked_at.get(plan_id, 0.0) >= _LOOK_SECONDS

    def _join(self, plan_id: str, facts: Mapping[str, Any]) -> None:
        root = self._root_of(str(facts.get("parent")))
        if root is not None and plan_id not in self._view:
            self._listen(self._client.get(f"/plans/{plan_id}"), root)

    def _looked(self, plan_id: str) -> Account:
        account: Account = self._client.get(f"/plans/{plan_id}")
        self._accounts[plan_id] = account
        self._meters[plan_id].take(account)
        self._looked_at[plan_id] = time.monotonic()
        return account

    def _rests(self, account: Account) -> bool:
        if is_running(account):
            return False
        if waited_for(account) == _SUB_PLANS and account["needs"] is None:
            return not any(row["state"] in _RUNNING for row in account["sub_plans"])
        # A worker that is done with it may still be about to apply it.
        return account["job"] is None or self._is_over(account["job"])

    def _is_over(self, job_id: str) -> bool:
        return self._client.get(f"/jobs/{job_id}")["state"] in _OVER

    def _listen(self, account: Account, root: str) -> None:
        self._meters[root].take(account)
        self._view.add(plan_of(account))
        self._follower.listen_to(account["id"], self._after.numbers.get(account["id"], 0))

    def _show(self, piece: Account) -> None:
        if self._hear is not None and piece["kind"] == "progress":
            for line in str(piece["text"]).splitlines():
                self._hear(line)
        self._view.show(str(piece["plan_id"]), str(piece["kind"]), str(piece["text"]))

    def _show_kept(self) -> None:
        """What they have printed since then, each piece in its time."""
        ways = [
            self._client.pages(f"/plans/{plan_id}/output", after=self._follower.number_of(plan_id))
            for plan_id in self._view
        ]
        for piece in heapq.merge(*ways, key=lambda piece: str(piece["time"])):
            if self._follower.is_new(piece):
                self._show(piece)

    def _show_rest(self) -> None:
        """What was printed last may be kept a moment later than the plan came to rest; and it may have come
        to rest before all was heard of it."""
        for event in self._client.pages("/events", after=self._follower.position, type="plan.created"):
            self._join(str(event["subject"]), event["facts"])
        self._show_kept()


def on_server(plan_id: str, prefix: str) -> str:
    """What is true of a plan that goes on there, whatever becomes of the command that began it."""
    return f"plan {plan_id} is on the server; `{prefix} plan show {plan_id}` says more"


def _end_unless_cancelled(account: Account, prefix: str) -> None:
    """As `end_unless_cancelled` does for a plan that is run here."""
    if account["state"] == "cancelled":
        return
    progress(f"interrupted; plan {account['id']} is left as it is: {account['meaning']}")
    tell_next(account, prefix)
    raise click.exceptions.Exit(INTERRUPTED)


def _below(client: ServerClient, account: Account) -> list[str]:
    """The plans below it, each after its parent."""
    if not any(row["id"] for row in account["sub_plans"]):
        return []
    rows = client.pages(f"/plans/{account['id']}/decisions")
    return [str(row["id"]) for row in rows if row["kind"] == "sub-plan" and row["id"]]


def _knows(meter: ServedMeter, plan_id: str) -> bool:
    return any(one.plan.id == plan_id for one in (meter.last, *meter.below))
