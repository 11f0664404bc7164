"""What becomes of a plan that a server runs: asked on a terminal, told elsewhere, done by the server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from cleveragents.cli.asking import asked_choice, confirmed
from cleveragents.cli.client.accounts import (
    Account,
    error_of,
    failed_checks,
    is_done,
    place_of,
    tell_changes,
    tell_next,
    tell_reason,
    title_of,
    told_account,
    waited_for,
)
from cleveragents.cli.client.plan.following import Moment, PlansFollower, moment_now, run_to_rest
from cleveragents.cli.client.problems import ServerSaid, refused_job
from cleveragents.cli.output import Output, counted, progress
from cleveragents.cli.plan.outcome import INTERRUPTED, NEEDS_HUMAN, TRY_AGAIN
from cleveragents.cli.plan.view import shown_diff
from cleveragents.cli.plan.work import APPLY_IT, asked_for, interactive
from cleveragents.core.errors import (
    Cancelled,
    CheckFailed,
    CleverAgentsError,
    NotAuthenticated,
    PlanFailed,
    ServerUnreachable,
)

if TYPE_CHECKING:
    from cleveragents.cli.client.server_client import ServerClient

__all__ = ["Deciding", "apply_now", "decide", "job_done", "told_at_the_end", "who_needs_somebody", "work_on"]

_SUB_PLANS = "sub-plans"
_REVIEW = "review"
_LINES_KEPT = 100
_Reply = TypeVar("_Reply")


@dataclass(frozen=True, slots=True)
class Deciding:
    """Whom to ask, how the next command begins, what the user wants of the result; and what plans `said` of
    themselves last, which nobody needs to read twice."""

    client: ServerClient
    prefix: str
    output: Output
    yes: bool = False
    only_review: bool = False
    message: str | None = None
    to_branch: str | None = None
    said: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))


@contextmanager
def told_at_the_end(deciding: Deciding, plan_id: str) -> Iterator[None]:
    """Whatever comes of the block, where the plan stands is told; how it is followed later, where no server
    is left to say that."""
    try:
        yield
    except (NotAuthenticated, ServerUnreachable) as lost:
        again = "the server answers" if isinstance(lost, ServerUnreachable) else "you are logged in again"
        watch = f"{deciding.prefix} plan watch {plan_id}"
        progress(f"the plan does not need this connection; once {again}, `{watch}` follows it")
        raise
    except BaseException as ended:
        if _is_interruption(ended):
            with suppress(CleverAgentsError, ServerSaid), deciding.client.without_patience():
                told_account(deciding.output, deciding.client.get(f"/plans/{plan_id}"))
            raise
        told_account(deciding.output, deciding.client.get(f"/plans/{plan_id}"))
        raise
    told_account(deciding.output, deciding.client.get(f"/plans/{plan_id}"))


def _is_interruption(ended: BaseException) -> bool:
    """Whether somebody wants to leave: they do not wait for a server that may be gone."""
    if isinstance(ended, click.exceptions.Exit):
        return ended.exit_code == INTERRUPTED
    return isinstance(ended, (KeyboardInterrupt, click.Abort))


def work_on(deciding: Deciding, account: Account, *, after: Moment, quiet: bool = False) -> Account:
    """The plan, once nobody works at it or at the whole that it is a part of."""
    return run_to_rest(
        deciding.client,
        account,
        deciding.output,
        after=after,
        prefix=deciding.prefix,
        quiet=quiet,
        hear=deciding.said.append,
    )


def decide(deciding: Deciding, account: Account) -> Account:
    """Takes a plan from where the server left it to where the user wants it, asking on a terminal. Exits with
    3, having said what is needed, where somebody would have to be asked and nobody is there.
    `PlanFailed`, `Cancelled`, `CheckFailed`."""
    while account["state"] == "waiting":
        account = _answered(deciding, account)
    if account["state"] == "cancelled":
        raise Cancelled((account["error"] or "").removeprefix("cancelled: "))
    if account["state"] == "constrained":
        _tell_constrained(deciding, account)
    if account["state"] == "errored":
        tell_next(account, deciding.prefix)
        raise PlanFailed(account["id"], error_of(account, "it says no more"))
    if account["state"] == "applied":
        _tell_applied(deciding, account)
    if not is_done(account):
        return account
    changed = tell_changes(account)
    if account["parent"] is not None:
        tell_next(account, deciding.prefix)
    elif changed and deciding.only_review:
        tell_next(account, deciding.prefix, deciding.message)
    elif changed:
        account = _applied_or_not(deciding, account)
    _ensure_checked(account)
    return account


def apply_now(deciding: Deciding, account: Account) -> Account:
    """The plan, applied by a worker of the server. `PlanFailed`, or `ServerSaid` with what stands in the
    way."""
    client, plan_id = deciding.client, account["id"]
    after = moment_now(client, account)
    asked = {"commit": deciding.message, "to_branch": deciding.to_branch}
    job = client.post(f"/plans/{plan_id}/apply", asked)
    account = job_done(deciding, account, job, after=after)
    if account["state"] == "applied":
        _tell_applied(deciding, account)
        return account
    if account["state"] == "constrained":
        _tell_constrained(deciding, account)
    tell_next(account, deciding.prefix, deciding.message)
    ended = client.get(f"/jobs/{job['id']}")
    raise refused_job(plan_id, ended, account["error"] or "it was not applied")


def _tell_constrained(deciding: Deciding, account: Account) -> NoReturn:
    """It cannot be applied to what the files are now: exits with 3."""
    if not {*str(account["error"] or "").splitlines()} <= {*deciding.said}:  # who applied it may have said so
        tell_reason(account)
    tell_next(account, deciding.prefix, deciding.message)
    raise click.exceptions.Exit(NEEDS_HUMAN)


def job_done(deciding: Deciding, account: Account, job: Mapping[str, Any], *, after: Moment) -> Account:
    """The plan, when that job of it has ended."""
    hint = "Ctrl-C leaves it to the server"
    following = PlansFollower(
        deciding.client, [account], deciding.output, after=after, hint=hint, hear=deciding.said.append
    )
    try:
        return following.to_end_of(job["id"])
    except KeyboardInterrupt:
        following.close()
        show = f"{deciding.prefix} plan show {account['id']}"
        progress(f"the server goes on with it; `{show}` says where it stands")
        raise
    finally:
        following.close()


def _tell_applied(deciding: Deciding, account: Account) -> None:
    undo = f"`{deciding.prefix} plan undo {account['id']}` takes it back"
    files = counted(len(account["changes"]), "file")
    progress(f"applied to {files} of {place_of(account)}; {undo}")


def _ensure_checked(account: Account) -> None:
    """`CheckFailed`: whatever else was done, that is no success."""
    failed = failed_checks(account) if is_done(account) else []
    if failed:
        raise CheckFailed(account["id"], failed[0], "did not pass")


def _applied_or_not(deciding: Deciding, account: Account) -> Account:
    if failed_checks(account):
        tell_next(account, deciding.prefix, deciding.message)
        _ensure_checked(account)
    if _is_wanted_applied(deciding, account):
        return apply_now(deciding, account)
    if interactive():
        return _asked(deciding, account)
    progress("it is not applied: that is for you to decide")
    tell_next(account, deciding.prefix, deciding.message)
    raise click.exceptions.Exit(NEEDS_HUMAN)


def _is_wanted_applied(deciding: Deciding, account: Account) -> bool:
    """Whether a result goes into the files without a question. Where nothing is to be committed, the server
    has done that already, if the profile allows it."""
    if account["parts_left_out"]:
        return False
    if any(one["name"] == _REVIEW and one["verdict"] != "passed" for one in account["checks"]):
        return False
    return deciding.yes or (deciding.message is not None and _is_allowed(deciding, account))


def _is_allowed(deciding: Deciding, account: Account) -> bool:
    profile = account["request"].get("profile")
    found = [one for one in deciding.client.pages("/profiles") if one["name"] == profile]
    return bool(found) and found[0]["verdicts"].get("apply") == "allow"


def _asked(deciding: Deciding, account: Account) -> Account:
    client, plan_id = deciding.client, account["id"]
    while True:
        answer = _answer(deciding, account, partial(asked_choice, *APPLY_IT))
        if answer == "y":
            return apply_now(deciding, account)
        if answer == "r":
            rejected: Account = client.post(f"/plans/{plan_id}/reject")
            return rejected
        if answer == "n":
            tell_next(account, deciding.prefix, deciding.message)
        if answer in ("n", None):
            return account
        shown_diff(client.content(f"/plans/{plan_id}/diff", format="patch"))


def _answered(deciding: Deciding, account: Account) -> Account:
    """The plan, after whoever needs somebody was answered: the plan itself, or one below it."""
    client = deciding.client
    needing = who_needs_somebody(client, account)
    if not needing:
        progress(f"its sub-plans are under way; `{deciding.prefix} plan watch {account['id']}` follows them")
        raise click.exceptions.Exit(TRY_AGAIN)
    asking = needing[0]
    _tell_who_asks(deciding, account, asking)
    reply = _reply(deciding, asking) if interactive() else None
    if reply is None:
        for one in needing:
            tell_next(one, deciding.prefix)
        raise click.exceptions.Exit(NEEDS_HUMAN)
    after = moment_now(client, account)
    path, body = reply
    client.post(f"/plans/{asking['id']}/{path}", body)
    return work_on(deciding, client.get(f"/plans/{account['id']}"), after=after, quiet=True)


def who_needs_somebody(client: ServerClient, account: Account) -> list[Account]:
    """The plan, or those below it for which it waits."""
    if waited_for(account) != _SUB_PLANS:
        return [account]
    rows = client.pages("/plans", state="waiting", all="true")
    below = [row for row in rows if row["root"] == account["root"] and row["id"] != account["id"]]
    asking = [row for row in below if row["needs"] and waited_for(row) != _SUB_PLANS]
    return [client.get(f"/plans/{row['id']}") for row in asking]


def _tell_who_asks(deciding: Deciding, account: Account, asking: Account) -> None:
    if asking["id"] != account["id"]:
        progress(f"sub-plan {asking['id']} needs you: {title_of(asking)}")
    tell_reason(asking)
    call = _asking_call(asking)
    if call is not None:
        progress(f"  {call['tool']}: {call['what']}")


def _asking_call(account: Account) -> Mapping[str, Any] | None:
    asked = [call for call in account["calls"] if call["state"] == "asked"]
    return asked[-1] if asked and waited_for(account) == "leave" else None


def _reply(deciding: Deciding, asking: Account) -> tuple[str, dict[str, Any]] | None:
    """What to do and with what; None where the user does not want to say it now, or cannot here."""
    call = _asking_call(asking)
    if call is not None:
        granted = _answer(deciding, asking, partial(confirmed, "Allow it?"))
        if granted is None:
            return None
        return ("approve" if granted else "deny"), {"call": call["number"]}
    if waited_for(asking) == "question":
        waiting = asking["waiting_for"] if isinstance(asking["waiting_for"], Mapping) else {}
        text = _answer(deciding, asking, partial(asked_for, waiting))
        return None if text is None else ("answer", {"text": text, "question": waiting.get("question")})
    return None


def _answer(deciding: Deciding, account: Account, ask: Callable[[], _Reply]) -> _Reply | None:
    """What is answered; None for Ctrl-D, which means "not now". After Ctrl-C, too, the plan is left as it
    is."""
    try:
        return ask()
    except click.Abort as abort:
        progress("")  # the line of the question was not ended
        progress("it is left as it is")
        if not isinstance(abort.__context__, EOFError):
            tell_next(account, deciding.prefix, deciding.message)
            raise
        return None
