"""`agents plan diff|review|rollback|resolve`, asked of a server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from cleveragents.domain.path_spelling import named_by
from cleveragents.errors import NeedsHuman
from cleveragents.interfaces.cli import plan_changes, plan_conflicts
from cleveragents.interfaces.cli.client.accounts import Account, told_account
from cleveragents.interfaces.cli.client.problems import ServerSaid
from cleveragents.interfaces.cli.client.selection import connected, prefix_of
from cleveragents.interfaces.cli.client.twins import client_command
from cleveragents.interfaces.cli.output import Output, counted, progress
from cleveragents.interfaces.cli.plan_view import shown_diff
from cleveragents.interfaces.cli.plan_work import interactive
from cleveragents.interfaces.cli.session import Session
from cleveragents.interfaces.desk.changes import changes_in_words
from cleveragents.interfaces.desk.reviewing import is_meant

__all__ = ["diff_of_plan", "patch_of_files", "resolve_conflicts", "review_plan", "rollback_plan"]

_SECONDS = 60.0
_FILE = re.compile(rb"(?m)^diff --git ")


def _diff_of_plan(
    session: Session, plan_id: str, paths: tuple[str, ...], stat: bool, name_only: bool, output: Output
) -> None:
    if stat and name_only:
        raise click.UsageError("--stat and --name-only exclude each other")
    client = connected(session)
    account = client.get(f"/plans/{plan_id}")
    # Asked for even where only names are wanted: it says why where there is nothing to show any more.
    patch = client.content(f"/plans/{account['id']}/diff", format="patch")
    rows = [row for row in account["changes"] if is_meant(row["path"], paths)]
    if output.for_programs:
        output.table(rows, [], empty="")
        return
    if not rows:
        progress("nothing of that was changed" if paths else _nothing(account))
    elif name_only:
        shown_diff("".join(f"{row['path']}\n" for row in rows).encode("utf-8", "surrogateescape"))
    else:
        text = patch_of_files(patch, [row["path"] for row in rows]) if paths else patch
        shown_diff(_statistics(text) if stat else text)


def _nothing(account: Account) -> str:
    if account["state"] in ("queued", "processing"):
        return "nothing yet: it still runs, and what a step changes is recorded when the step ends"
    return "nothing was changed"


def patch_of_files(patch: bytes, paths: Sequence[str]) -> bytes:
    """What a patch says of these files."""
    begins = [found.start() for found in _FILE.finditer(patch)]
    pieces = [patch[one:other] for one, other in zip(begins, [*begins[1:], len(patch)], strict=True)]
    return b"".join(piece for piece in pieces if _path_of(piece) in paths)


def _path_of(piece: bytes) -> str:
    """Of `diff --git a/NAME b/NAME`: both are the same, and have the same length."""
    names = piece.partition(b"\n")[0].removeprefix(b"diff --git ").decode("utf-8", "surrogateescape")
    name = names[(len(names) + 1) // 2 :]
    return named_by(name).removeprefix("b/")


def _statistics(patch: bytes) -> bytes:
    from cleveragents.infrastructure.git.plumbing import run_git, user_environment, within

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
    session: Session, plan_id: str, paths: tuple[str, ...], reject: bool, output: Output
) -> None:
    if not paths:
        raise click.UsageError("name files")
    client, prefix = connected(session), prefix_of(session)
    account = client.post(f"/plans/{plan_id}/review", {"reject" if reject else "accept": list(paths)})
    for name in paths:
        again = "" if not reject else f"; `{prefix} plan review {account['id']} --accept …` takes it in again"
        progress(f"{'left out' if reject else 'taken in'}: {name}{again}")
    changes = account["changes"]
    progress(f"to be applied: {changes_in_words(changes) if changes else 'nothing'}")
    told_account(output, account)


def _rollback_plan(session: Session, plan_id: str, checkpoint: int, yes: bool, output: Output) -> None:
    client, prefix = connected(session), prefix_of(session)
    path, body = f"/plans/{plan_id}/rollback", {"checkpoint": checkpoint, "discard": yes}
    try:
        account = client.post(path, body)
    except ServerSaid as said:
        if said.code != "needs-human":
            raise
        if not interactive():
            raise NeedsHuman(plan_id, said.message, "--yes throws it away") from None
        click.confirm(f"{said.message}. Throw it away?", abort=True, err=True)
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


_plan_argument = click.Argument(["plan_id"], metavar="PLAN")
_paths = click.Argument(["paths"], nargs=-1)

diff_of_plan = client_command(
    plan_changes.diff_of_plan,
    _diff_of_plan,
    without=("plan_id", "paths", "between"),
    more=(_plan_argument, _paths),
)
review_plan = client_command(plan_changes.review_plan, _review_plan, without=("changesets",))
rollback_plan = client_command(plan_changes.rollback_plan, _rollback_plan)
resolve_conflicts = client_command(plan_conflicts.resolve_conflicts, _resolve_conflicts)
