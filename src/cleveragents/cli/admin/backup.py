"""`agents backup`: a copy of everything that is kept, made while work goes on."""

from __future__ import annotations

from pathlib import Path

import click

from cleveragents.cli.output import Output, counted, format_option, progress
from cleveragents.cli.session import Session, pass_session

__all__ = ["backup"]

_NAMED = 5


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@format_option
@pass_session
def backup(session: Session, directory: Path, output: Output) -> None:
    """Copy all that is kept, while work goes on.

    Into DIRECTORY, which is made: the database, the audit log's head and key, and the sandboxes with work
    that is not applied yet. What a plan does meanwhile may be missing; it is resumed after a restore.
    A database on PostgreSQL is not copied: run pg_dump after this. What is in it is secret: keep it so.

    \b
    Example:
      agents backup /srv/backups/agents-2026-11-15
    """
    from cleveragents.storage.backup import back_up

    settings = session.configuration().settings
    made = back_up(Path(settings.state.directory), settings.database.url, directory, progress)
    whole = "everything" if made.database is not None else "everything but the database"
    progress(f"{whole} is in {made.directory}, with {counted(made.sandboxes, 'sandbox', 'sandboxes')}")
    if made.database is None:
        progress("pg_dump the database now, after the head of the audit log was copied")
    if made.left_out:
        count = counted(len(made.left_out), "entry", "entries")
        named = ", ".join(made.left_out[:_NAMED]) + (", …" if len(made.left_out) > _NAMED else "")
        progress(f"left out: {count} that cannot be copied: {named}")
    kept = None if made.database is None else str(made.database)
    output.record(
        {
            "directory": str(made.directory),
            "database": kept,
            "sandboxes": made.sandboxes,
            "left_out": list(made.left_out),
        }
    )
