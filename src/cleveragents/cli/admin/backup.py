"""`agents backup`: copy the state while plans run."""

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
    """Back up the state, also while plans run.

    Creates DIRECTORY with the database, the head and key of the audit log, and the sandboxes of plans that
    are not applied. Work done during the backup may be missing; resume such plans after a restore.
    A PostgreSQL database is not included: run pg_dump afterwards. Keep the backup secret.

    \b
    Example:
      agents backup /srv/backups/agents-2026-11-15
    """
    from cleveragents.storage.backup import back_up

    settings = session.configuration().settings
    made = back_up(Path(settings.state.directory), settings.database.url, directory, progress)
    whole = "everything" if made.database is not None else "all state but the database"
    progress(f"backed up {whole} to {made.directory}, with {counted(made.sandboxes, 'sandbox', 'sandboxes')}")
    if made.database is None:
        progress("now run pg_dump on the database")
    if made.left_out:
        count = counted(len(made.left_out), "entry", "entries")
        named = ", ".join(made.left_out[:_NAMED]) + (", …" if len(made.left_out) > _NAMED else "")
        progress(f"left out {count}, which cannot be copied: {named}")
    kept = None if made.database is None else str(made.database)
    output.record(
        {
            "directory": str(made.directory),
            "database": kept,
            "sandboxes": made.sandboxes,
            "left_out": list(made.left_out),
        }
    )
