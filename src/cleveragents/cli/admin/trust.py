"""`agents trust`: what a repository brings along, and whether it may count."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.asking import confirmed
from cleveragents.cli.output import Output, counted, format_option, progress, timestamp
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue

if TYPE_CHECKING:
    from cleveragents.access.trust_ports import BroughtFile, Survey, TrustStore

__all__ = ["WHAT_COUNTS", "trust"]

WHAT_COUNTS = "Actions, actors, skills, .mcp.json and .worktreeinclude count once trusted; others never do."


@click.command()
@click.argument("path", default=".", type=click.Path(path_type=Path))
@click.option("--resource", metavar="NAME", help="What that resource brings along, instead of PATH.")
@click.option("--yes", is_flag=True, help="Trust it without asking; for scripts.")
@click.option("--list", "listing", is_flag=True, help="Show all that is trusted, anywhere.")
@click.option("--revoke", is_flag=True, help="Trust nothing at or below PATH any more.")
@format_option
@pass_session
def trust(
    session: Session,
    path: Path,
    resource: str | None,
    yes: bool,
    listing: bool,
    revoke: bool,
    output: Output,
) -> None:
    """Trust what the repository at PATH brings along.

    A repository's .cleveragents.toml, .mcp.json, actions, checks and skills run nothing and loosen nothing
    until you trust them. You are shown what they would run. Trust is given to their content as it is now:
    when a file changes, you are asked again. PATH may also be a single file.

    With --resource it is what a resource of the server brings along; of a git remote, its branch as it is
    now. What is trusted there counts for plans on that remote, on every machine that shares the database.

    \b
    Example:
      agents trust
      agents trust --resource shop-far
      agents trust --list
      agents trust --revoke ~/src/project
    """
    if listing and revoke:
        raise click.UsageError("--list shows, --revoke takes away; say one of them")
    if resource is not None:
        path = _place_of(session, resource, revoke=revoke)
    if listing:
        _show_all(_store(session), output)
    elif revoke:
        gone = _store(session).revoke(path)
        output.table(
            [{"path": name} for name in gone], ["path"], empty=f"nothing at {resource or path} was trusted"
        )
        if gone:
            progress(f"no longer trusted: {counted(len(gone), 'file')}")
    else:
        _trust(_store(session), path, yes, output)


def _place_of(session: Session, resource: str, *, revoke: bool) -> Path:
    from cleveragents.api.resources import place_of, trusted_place_of

    container = session.container()
    known = container.projects.resource(resource)
    return trusted_place_of(container, known) if revoke else place_of(container, known)


def _store(session: Session) -> TrustStore:
    return session.container().plan_parts.trust


def _show_all(store: TrustStore, output: Output) -> None:
    rows = [
        {"path": given.path, "trusted": timestamp(given.trusted_at), "digest": given.digest}
        for given in store.list()
    ]
    output.table(rows, ["path", "trusted", "digest"], empty="nothing is trusted")


def _trust(store: TrustStore, path: Path, yes: bool, output: Output) -> None:
    survey, files = _chosen(store, path)
    for name, why in survey.refused:
        progress(f"not trusted: {name} {why}")
    pending = [file for file in files if not file.trusted]
    if pending:
        _preview(survey.root, pending)
        if not yes and not _confirmed(survey.root, len(pending)):
            progress("nothing was trusted")
            raise click.exceptions.Exit(1)
        # What was shown is what is trusted: a file that changed meanwhile is not.
        store.give(survey.root, pending)
    empty = f"{survey.root} brings nothing along that would need trust"
    output.table([_row(file) for file in files], ["path", "size", "state"], empty=empty)


def _chosen(store: TrustStore, path: Path) -> tuple[Survey, list[BroughtFile]]:
    """What the repository brings along, and which of it PATH means."""
    from cleveragents.access.trust.repository_files import repository_root
    from cleveragents.core.errors import ConfigurationError

    if path.is_dir():
        survey = store.survey(repository_root(path))
        return survey, list(survey.files)
    if not path.exists():
        raise ConfigurationError(str(path), "does not exist; name a repository or one of its files")
    root = repository_root(path.parent)
    survey = store.survey(root)
    wanted = os.path.relpath(Path(os.path.realpath(path.parent)) / path.name, root)
    chosen = [file for file in survey.files if file.path == wanted]
    if not chosen:
        raise ConfigurationError(str(path), "is not something that needs trust, or cannot be trusted")
    return survey, chosen


def _preview(root: Path, pending: list[BroughtFile]) -> None:
    from cleveragents.api.trust_preview import preview

    progress(f"{root} brings along:")
    for file in pending:
        progress(f"  {file.path} ({len(file.content)} bytes)")
        for line in preview(file):
            progress(f"      {line}")
    progress(WHAT_COUNTS)


def _confirmed(root: Path, count: int) -> bool:
    from cleveragents.core.errors import NotTrusted

    if not sys.stdin.isatty():
        raise NotTrusted(f"what {root} brings along ({counted(count, 'file')})", f"--yes {root}")
    return confirmed(f"Trust {counted(count, 'file')}, as they are now?")


def _row(file: BroughtFile) -> dict[str, JsonValue]:
    return {
        "path": file.path,
        "size": len(file.content),
        "state": "trusted already" if file.trusted else "trusted",
        "digest": file.digest,
    }
