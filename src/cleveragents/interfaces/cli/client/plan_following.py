"""Follows a plan that a server runs: shows what it says and prints, until nobody works at it any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from cleveragents.domain.progress import Progress, ProgressKind
from cleveragents.interfaces.cli.client.accounts import Account, is_running, waited_for
from cleveragents.interfaces.cli.client.following import Follower, Frame
from cleveragents.interfaces.cli.live_view import LiveView, PlainView
from cleveragents.interfaces.cli.output import Output, progress
from cleveragents.interfaces.cli.plan_outcome import INTERRUPTED
from cleveragents.interfaces.desk.wording import on_one_line

if TYPE_CHECKING:
    from cleveragents.interfaces.cli.client.server_client import ServerClient

__all__ = ["PlanFollower", "latest_position", "run_to_rest"]

_OVER = ("succeeded", "failed", "cancelled")
_SUB_PLANS = "sub-plans"
_SHORT = 6


def latest_position(client: ServerClient) -> int:
    """The place in the log where events from now on begin."""
    found = client.get("/events", limit=1)["items"]
    return int(found[-1]["position"]) if found else 0


def run_to_rest(
    client: ServerClient, account: Account, output: Output, *, after: int, prefix: str, quiet: bool = False
) -> Account:
    """The plan, when nobody works at it. Ctrl-C has the server stop it, and that is waited for; a second one
    leaves it to the server. `quiet`: what was printed before is not shown again, nor its goal."""
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

    def __init__(self, client: ServerClient, account: Account, output: Output, *, after: int) -> None:
        self.plan_id: str = account["id"]
        self._client = client
        self._follower = Follower(client, after)
        self._stream = output.format == "stream-json"
        self._views: dict[str, LiveView] = {}
        self._thoughts: dict[str, str] = {}
        self._family = {self.plan_id: account["root"]}
        self._jobs: set[str] = set()
        self._listen(self.plan_id, account["parent"])
        for row in account["sub_plans"]:
            if row["id"] is not None:
                self._listen(str(row["id"]), self.plan_id)

    def say(self, message: str) -> None:
        """About the plan itself."""
        self._views[self.plan_id].say(message)

    def close(self) -> None:
        """Nothing more is shown."""
        for plan_id, view in self._views.items():
            self._end_thought(plan_id)
            view.close()

    def to_rest(self) -> Account:
        """The account, when nobody works at the plan."""
        return self._until(self._rests)

    def to_end_of(self, job_id: str) -> Account:
        """The account, when that job of the plan has ended."""
        self._jobs.add(job_id)
        return self._until(lambda account: self._is_over(job_id))

    def _until(self, over: Callable[[Account], bool]) -> Account:
        account = self._looked()
        standing = _standing(account)
        for frame in self._follower.frames():
            if frame.kind == "output":
                self._show(frame.data)
            elif self._is_news(frame) or not frame.kind:
                account = self._looked()
                if _standing(account) != standing:
                    standing = _standing(account)
                    self.say(standing)
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
        if frame.kind == "plan.created" and parent in self._family:
            self._listen(subject, str(parent))
        return subject in self._family or subject in self._jobs

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
        if plan_id in self._views:
            return
        self._family[plan_id] = self.plan_id
        self._follower.listen_to(plan_id)
        self._views[plan_id] = self._view(plan_id, parent)

    def _view(self, plan_id: str, parent: str | None) -> LiveView:
        if self._stream:
            from cleveragents.interfaces.cli.stream_view import StreamView

            return StreamView(plan_id, parent_id=parent)
        return PlainView("" if plan_id == self.plan_id else f"{plan_id[-_SHORT:]}  ")

    def _show(self, piece: Account) -> None:
        plan_id, kind, text = str(piece["plan_id"]), piece["kind"], str(piece["text"])
        view = self._views.get(plan_id)
        if view is None:
            return
        if kind == "model":
            self._thoughts[plan_id] = self._thoughts.get(plan_id, "") + text
            return
        self._end_thought(plan_id)
        if kind == "progress":
            for line in text.splitlines():
                view.say(line)
        elif kind == "output":
            view.output(text.encode("utf-8", "surrogateescape"))

    def _end_thought(self, plan_id: str) -> None:
        """What a model said is shown when it has ended, in a line, as where no server is between."""
        thought = self._thoughts.pop(plan_id, "")
        if thought:
            self._views[plan_id].seen(Progress(ProgressKind.THOUGHT, "", "", thought))

    def _show_rest(self) -> None:
        """What was printed last may be kept a moment later than the plan came to rest."""
        for plan_id in list(self._views):
            for piece in self._client.pages(
                f"/plans/{plan_id}/output", after=self._follower.number_of(plan_id)
            ):
                if self._follower.is_new(piece):
                    self._show(piece)


def _standing(account: Account) -> str:
    return f"{account['phase']}/{account['state']}"
