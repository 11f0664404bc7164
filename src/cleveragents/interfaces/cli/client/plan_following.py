"""Follows a plan that a server runs: shows what it says and prints, until nobody works at it any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from cleveragents.interfaces.cli.client.accounts import Account, is_running, waited_for
from cleveragents.interfaces.cli.client.following import Follower, Frame
from cleveragents.interfaces.cli.output import Output, progress
from cleveragents.interfaces.cli.pieces_view import PiecesView
from cleveragents.interfaces.cli.plan_outcome import INTERRUPTED
from cleveragents.interfaces.desk.wording import on_one_line

if TYPE_CHECKING:
    from cleveragents.interfaces.cli.client.server_client import ServerClient

__all__ = ["Moment", "PlanFollower", "moment_now", "run_to_rest"]

_OVER = ("succeeded", "failed", "cancelled")
_SUB_PLANS = "sub-plans"


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
        below = [str(row["id"]) for row in account["sub_plans"] if row["id"] is not None]
        for plan_id in (account["id"], *below):
            for piece in client.pages(f"/plans/{plan_id}/output"):
                numbers[plan_id] = piece["number"]
    return Moment(int(found[-1]["position"]) if found else 0, numbers)


def run_to_rest(
    client: ServerClient, account: Account, output: Output, *, after: Moment, prefix: str, quiet: bool = False
) -> Account:
    """The plan, when nobody works at it. Ctrl-C has the server stop it, and that is waited for; a second one
    leaves it to the server. `quiet`: its goal is not said again."""
    following = PlanFollower(client, account, output, after=after)
    try:
        if not quiet:
            following.say(f"plan {account['id']}: {on_one_line(account['goal'])}")
        return following.to_rest()
    except KeyboardInterrupt:
        return _stopped(client, following, prefix)
    finally:
        following.close()


def _stopped(client: ServerClient, following: PlanFollower, prefix: str) -> Account:
    plan_id = following.plan_id
    progress(f"stopping plan {plan_id} …")
    try:
        if is_running(client.get(f"/plans/{plan_id}")):
            client.post(f"/plans/{plan_id}/cancel", {"reason": "interrupted by the user"})
        return following.to_rest()
    except KeyboardInterrupt:
        progress(f"the server goes on with it; `{prefix} plan show {plan_id}` says where it stands")
        raise click.exceptions.Exit(INTERRUPTED) from None


class PlanFollower:
    """What is shown of a plan and of those below it. Not thread-safe: who watches asks."""

    def __init__(
        self,
        client: ServerClient,
        account: Account,
        output: Output,
        *,
        after: Moment,
        standings: bool = False,
    ) -> None:
        self.plan_id: str = account["id"]
        self._client = client
        self._follower = Follower(client, after.position)
        self._numbers = after.numbers
        self._view = PiecesView(self.plan_id, account["parent"], output)
        self._standings = standings
        self._jobs: set[str] = set()
        self._listen(self.plan_id, account["parent"])
        for row in account["sub_plans"]:
            if row["id"] is not None:
                self._listen(str(row["id"]), self.plan_id)

    def say(self, message: str) -> None:
        """About the plan itself."""
        self._view.say(message)

    def close(self) -> None:
        """Nothing more is shown."""
        self._view.close()

    def to_rest(self) -> Account:
        """The account, when nobody works at the plan."""
        return self._until(self._rests)

    def to_end_of(self, job_id: str) -> Account:
        """The account, when that job of the plan has ended."""
        self._jobs.add(job_id)
        return self._until(lambda account: self._is_over(job_id))

    def _until(self, over: Callable[[Account], bool]) -> Account:
        account = self._looked()
        standing = ""
        for frame in self._follower.frames():
            if frame.kind == "output":
                self._show(frame.data)
            elif self._is_news(frame) or not frame.kind:
                account = self._looked()
                if self._standings and _standing(account) != standing:
                    standing = _standing(account)
                    self.say(standing)
                if over(account):
                    account = self._looked()  # guard: it may have moved between the two looks
                    if over(account):
                        break
        self._show_rest()
        return account

    def _looked(self) -> Account:
        account: Account = self._client.get(f"/plans/{self.plan_id}")
        if account["job"] is not None:
            self._jobs.add(account["job"])
        return account

    def _is_news(self, frame: Frame) -> bool:
        subject = str(frame.data.get("subject"))
        facts = frame.data.get("facts")
        parent = facts.get("parent") if isinstance(facts, dict) else None
        if frame.kind == "plan.created" and parent in self._view:
            self._listen(subject, str(parent))
        return subject in self._view or subject in self._jobs

    def _rests(self, account: Account) -> bool:
        if is_running(account):
            return False
        if waited_for(account) == _SUB_PLANS and account["needs"] is None:
            return not any(row["state"] in ("queued", "processing") for row in account["sub_plans"])
        # A worker that is done with it may still be about to apply it.
        return account["job"] is None or self._is_over(account["job"])

    def _is_over(self, job_id: str) -> bool:
        return self._client.get(f"/jobs/{job_id}")["state"] in _OVER

    def _listen(self, plan_id: str, parent: str | None) -> None:
        self._view.add(plan_id, parent)
        self._follower.listen_to(plan_id, self._numbers.get(plan_id, 0))

    def _show(self, piece: Account) -> None:
        self._view.show(str(piece["plan_id"]), str(piece["kind"]), str(piece["text"]))

    def _show_rest(self) -> None:
        """What was printed last may be kept a moment later than the plan came to rest."""
        for plan_id in self._view:
            for piece in self._client.pages(
                f"/plans/{plan_id}/output", after=self._follower.number_of(plan_id)
            ):
                if self._follower.is_new(piece):
                    self._show(piece)


def _standing(account: Account) -> str:
    return f"{account['phase']}/{account['state']}"
