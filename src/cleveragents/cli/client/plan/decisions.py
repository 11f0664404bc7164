"""`agents plan approve|deny|answer|resume`, carried out by a server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from cleveragents.api.plans.spending import limits_in_usd
from cleveragents.cli.client.accounts import Account, tell_next, told_account
from cleveragents.cli.client.plan.deciding import (
    Deciding,
    decide,
    told_at_the_end,
    work_on,
)
from cleveragents.cli.client.plan.following import moment_now
from cleveragents.cli.client.selection import connected, prefix_of
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, progress
from cleveragents.cli.plan import decisions as local
from cleveragents.cli.plan import thinking as local_thinking
from cleveragents.cli.session import Session
from cleveragents.core.errors import Cancelled
from cleveragents.models.model.budget import Limits

__all__ = [
    "answer_plan",
    "approve_plan",
    "deny_plan",
    "given_limits",
    "go_on",
    "resume_plan",
    "told_denied",
]


def given_limits(limits: Limits) -> dict[str, Any] | None:
    """As the server takes them; None where there are none."""
    given = {name: value for name, value in limits_in_usd(limits).items() if value is not None}
    return given or None


def go_on(
    deciding: Deciding,
    plan_id: str,
    path: str,
    body: dict[str, Any],
    *,
    tell: Callable[[Account], None] | None = None,
) -> None:
    """Has the server go on with a plan, and follows it as far as that goes; `tell` says before what was
    done."""
    client = deciding.client
    account = client.get(f"/plans/{plan_id}")
    told = account["root"]
    whole = account if account["parent"] is None else client.get(f"/plans/{told}")
    after = moment_now(client, whole)
    account = client.post(f"/plans/{account['id']}/{path}", body)
    if tell is not None:
        tell(account)
    if account["parent"] is not None:
        account = client.get(f"/plans/{told}")
    with told_at_the_end(deciding, told):
        decide(deciding, work_on(deciding, account, after=after, quiet=True))


def _deciding(session: Session, output: Output, **wanted: Any) -> Deciding:
    return Deciding(connected(session), prefix_of(session), output, **wanted)


def _approve_plan(session: Session, plan_id: str, number: int | None, output: Output) -> None:
    go_on(_deciding(session, output), plan_id, "approve", {"call": number})


def _deny_plan(session: Session, plan_id: str, number: int | None, output: Output) -> None:
    deciding = _deciding(session, output)
    client = deciding.client
    account = client.get(f"/plans/{plan_id}")
    after = moment_now(client, account)
    account = client.post(f"/plans/{account['id']}/deny", {"call": number})
    told_denied(deciding, work_on(deciding, account, after=after, quiet=True))


def told_denied(deciding: Deciding, account: Account) -> None:
    """Where a plan stands that was refused leave, and the whole that it is a part of. `Cancelled`, where
    somebody interrupted that."""
    is_part = account["parent"] is not None
    whole = deciding.client.get(f"/plans/{account['root']}") if is_part else account
    ended = [one for one in (account, whole) if one["state"] == "cancelled"]
    if account["error"] is not None and not ended:
        progress(f"denied: {account['error']}")
    told_account(deciding.output, account)
    if is_part:
        progress(f"it is a part of plan {whole['id']}, {whole['meaning']}")
        tell_next(whole, deciding.prefix)
    if ended:
        raise Cancelled((ended[0]["error"] or "").removeprefix("cancelled: "))


def _answer_plan(session: Session, plan_id: str, text: str, output: Output) -> None:
    given = sys.stdin.read().strip() if text == "-" else text
    if not given.strip():
        raise click.UsageError("an answer has words")
    deciding = _deciding(session, output)
    waiting = deciding.client.get(f"/plans/{plan_id}")["waiting_for"]
    asked = waiting.get("question") if isinstance(waiting, dict) else None
    # Where nothing is asked, the server says what is the matter instead.
    go_on(deciding, plan_id, "answer", {"text": given, "question": asked or "none"})


def _resume_plan(
    session: Session, plan_id: str, model: str | None, limits: Limits, yes: bool, output: Output
) -> None:
    deciding = _deciding(session, output, yes=yes)
    go_on(deciding, plan_id, "resume", {"model": model, "limits": given_limits(limits)})


approve_plan = client_command(local.approve_plan, _approve_plan)
deny_plan = client_command(local.deny_plan, _deny_plan)
answer_plan = client_command(local_thinking.answer_plan, _answer_plan)
resume_plan = client_command(local.resume_plan, _resume_plan)
