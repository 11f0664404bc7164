"""`agents plan diff|review|reread|rollback|resolve`, asked of a server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from cleveragents.api.plans.changes import changes_in_words
from cleveragents.api.plans.reviewing import is_meant
from cleveragents.api.wording import shown_name
from cleveragents.cli.asking import ensure_confirmed
from cleveragents.cli.client.accounts import Account, told_account
from cleveragents.cli.client.problems import ServerSaid, not_there
from cleveragents.cli.client.selection import connected, prefix_of
from cleveragents.cli.client.server_client import ServerClient
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, counted, printable, progress
from cleveragents.cli.plan import changes as plan_changes
from cleveragents.cli.plan import conflicts as plan_conflicts
from cleveragents.cli.plan.between import split_outcome
from cleveragents.cli.plan.view import shown_diff
from cleveragents.cli.plan.work import interactive
from cleveragents.cli.session import Session
from cleveragents.core.errors import NeedsHuman, UnknownPlan
from cleveragents.core.errors.remedy import Remedy
from cleveragents.core.text.control_characters import named_by

__all__ = [
    "diff_of_plan",
    "patch_of_files",
    "reread_plan",
    "resolve_conflicts",
    "review_plan",
    "rollback_plan",
]

_SECONDS = 60.0
_FILE = re.compile(rb"(?m)^diff --git ")


def _diff_of_plan(
    session: Session,
    plan_id: str | None,
    paths: tuple[str, ...],
    stat: bool,
    name_only: bool,
    between: tuple[str, str] | None,
    output: Output,
) -> None:
    if stat and name_only:
        raise click.UsageError("--stat and --name-only exclude each other")
    client = connected(session)
    if between is not None:
        # There is no plan to name, so whatever else is said is a path.
        named = paths if plan_id is None else (plan_id, *paths)
        found = _compared(client, between, named, output, prefix_of(session))
    elif plan_id is None:
        raise click.UsageError("name a PLAN, or two outcomes with --between")
    else:
        found = _changed(client, plan_id, paths, prefix_of(session))
    if output.for_programs:
        output.table(found.rows, [], empty="")
    elif not found.rows:
        progress(found.nothing)
    elif name_only:
        names = "".join(f"{row['path']}\n" for row in found.rows)
        shown_diff(names.encode("utf-8", "surrogateescape"))
    else:
        meant = [row["path"] for row in found.rows]
        text = patch_of_files(found.patch, meant) if paths or between else found.patch
        shown_diff(_statistics(text) if stat else text)


@dataclass(frozen=True, slots=True)
class _Difference:
    """The files that are meant, a patch of all, and what to say where there are none."""

    rows: list[Account]
    patch: bytes
    nothing: str


def _changed(client: ServerClient, plan_id: str, paths: Sequence[str], prefix: str) -> _Difference:
    _ensure_name(plan_id)
    account = client.get(f"/plans/{plan_id}")
    # Asked for even where only names are wanted: it says why where there is nothing to show any more.
    patch = client.content(f"/plans/{account['id']}/diff", format="patch")
    rows = [row for row in account["changes"] if is_meant(row["path"], paths)]
    return _Difference(rows, patch, "" if rows else _nothing(client, account, paths, prefix))


def _ensure_name(plan_id: str) -> None:
    if "/" in plan_id:
        raise not_there(UnknownPlan(plan_id))


def _compared(
    client: ServerClient, between: tuple[str, str], paths: Sequence[str], output: Output, prefix: str
) -> _Difference:
    (one, before), (other, other_before) = (split_outcome(name) for name in between)
    _ensure_name(one)
    path = f"/plans/{one}/comparison"
    query = {"other": other, "before": before, "other_before": other_before}
    found = client.get(path, **query)
    if found["note"] is not None:
        progress(printable(found["note"]))
    rows = [row for row in found["files"] if is_meant(row["path"], paths)]
    patch = b"" if output.for_programs else client.content(path, format="patch", **query)
    return _Difference(rows, patch, "nothing of that differs" if paths else "they came to the same")


def _nothing(client: ServerClient, account: Account, paths: Sequence[str], prefix: str) -> str:
    if account["state"] in ("queued", "processing"):
        return plan_changes.NOTHING_YET
    files = client.get(f"/plans/{account['id']}/diff")["files"]
    left_out = any(is_meant(row["path"], paths) for row in files if not row["accepted"])
    review = f"{prefix} plan review {account['id']}"
    return plan_changes.nothing_to_show(paths, left_out=left_out, review=review)


def patch_of_files(patch: bytes, paths: Sequence[str]) -> bytes:
    """What a patch says of these files."""
    begins = [found.start() for found in _FILE.finditer(patch)]
    pieces = [patch[one:other] for one, other in zip(begins, [*begins[1:], len(patch)], strict=True)]
    return b"".join(piece for piece in pieces if _path_of(piece) in paths)


def _path_of(piece: bytes) -> str:
    """Of `diff --git a/NAME b/NAME`: both are the same, and have the same length. Bytes that are no text are
    as the server names them in JSON."""
    names = piece.partition(b"\n")[0].removeprefix(b"diff --git ").decode("utf-8", "surrogateescape")
    name = names[(len(names) + 1) // 2 :]
    return shown_name(named_by(name).removeprefix("b/"))


def _statistics(patch: bytes) -> bytes:
    from cleveragents.git.plumbing import run_git, user_environment, within

    here = Path.cwd()
    return run_git(
        "apply",
        "--stat",
        environment=user_environment(),
        directory=here,
        feed=patch,
        seconds_left=within(_SECONDS),
    )


def _review_plan(
    session: Session,
    plan_id: str,
    paths: tuple[str, ...],
    reject: bool,
    changesets: tuple[str, ...],
    output: Output,
) -> None:
    if not paths and not changesets:
        raise click.UsageError("name files, or changesets with --changeset")
    client, prefix = connected(session), prefix_of(session)
    verdict = "reject" if reject else "accept"
    body = {verdict: list(paths), f"{verdict}_changesets": list(changesets)}
    account = client.post(f"/plans/{plan_id}/review", {name: said for name, said in body.items() if said})
    for name in (*paths, *changesets):
        again = "" if not reject else f"; `{prefix} plan review {account['id']} --accept …` takes it in again"
        progress(f"{'left out' if reject else 'taken in'}: {name}{again}")
    changes = account["changes"]
    progress(f"to be applied: {changes_in_words(changes) if changes else 'nothing'}")
    told_account(output, account)


def _reread_plan(session: Session, plan_id: str, output: Output) -> None:
    client = connected(session)
    before = client.get(f"/plans/{plan_id}")
    account = client.post(f"/plans/{before['id']}/reread")
    number = _last_call(account)
    if number == _last_call(before):
        progress("nothing was edited")
    else:
        in_all = f"{changes_in_words(account['changes'])} in all"
        progress(f"what was edited there is recorded as call {number}: {in_all}")
    told_account(output, account)


def _last_call(account: Account) -> int:
    return max((int(call["number"]) for call in account["calls"]), default=0)


def _rollback_plan(session: Session, plan_id: str, checkpoint: int, yes: bool, output: Output) -> None:
    client, prefix = connected(session), prefix_of(session)
    path, body = f"/plans/{plan_id}/rollback", {"checkpoint": checkpoint, "discard": yes}
    try:
        account = client.post(path, body)
    except ServerSaid as said:
        if said.code != "needs-human":
            raise
        if not interactive():
            discard = Remedy("plan.rollback", plan_id, body | {"discard": True}, "Throw it away")
            raise NeedsHuman(plan_id, said.message, (discard,)) from None
        ensure_confirmed(f"{said.message}. Throw it away?")
        account = client.post(path, {**body, "discard": True})
    progress(f"back at checkpoint {checkpoint}: {changes_in_words(account['changes'])}")
    progress(f"`{prefix} plan resume {account['id']}` makes the calls from {checkpoint} on again")
    told_account(output, account)


def _resolve_conflicts(
    session: Session, plan_id: str, paths: tuple[str, ...], take: str | None, output: Output
) -> None:
    if bool(paths) != (take is not None):
        raise click.UsageError("name PATHS together with one of --ours, --theirs and --edited")
    client, prefix = connected(session), prefix_of(session)
    account = client.get(f"/plans/{plan_id}")
    name = account["id"]
    if take is None:
        rows, columns = account["conflicts"], ["path", "kind", "sub_plan"]
        output.table(rows, columns, empty=f"plan {name} has no open conflict")
        return
    for path in paths:
        account = client.post(f"/plans/{name}/resolve", {"path": path, "take": take})
        progress(f"resolved: {path} ({take})")
    left = account["conflicts"]
    if left:
        progress(f"{counted(len(left), 'conflict')} left; `{prefix} plan resolve {name}` shows them")
    else:
        progress(f"no conflict is left; `{prefix} plan resume {name}` goes on")
    told_account(output, account)


diff_of_plan = client_command(plan_changes.diff_of_plan, _diff_of_plan)
review_plan = client_command(plan_changes.review_plan, _review_plan)
reread_plan = client_command(plan_changes.reread_plan, _reread_plan)
rollback_plan = client_command(plan_changes.rollback_plan, _rollback_plan)
resolve_conflicts = client_command(plan_conflicts.resolve_conflicts, _resolve_conflicts)
