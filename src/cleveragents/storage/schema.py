"""Brings a database to the schema of this version, once, however many processes open it at once.

Alembic takes a third of a second to import, so it is asked only when there is something to migrate: the
stored revision is looked up with plain SQL.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from cleveragents.core.errors import DatabaseUnusable
from cleveragents.storage.database import Database

__all__ = ["HEAD", "REVISIONS", "ensure_schema"]

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011")
"""Every revision this version knows, oldest first: the names of the files in `migrations/versions`."""

HEAD = REVISIONS[-1]

_MIGRATIONS = Path(__file__).parent / "migrations"


def ensure_schema(database: Database) -> None:
    """Returns when the schema is this version's. `DatabaseUnusable` if it is newer, or not ours."""
    with database.read() as connection:
        current = _revision(connection, database)
    if current != HEAD:
        database.migrate(lambda connection: _upgrade(connection, database))


def _upgrade(connection: Connection, database: Database) -> None:
    # Looked up again, inside the transaction: another process may have been faster.
    if _revision(connection, database) == HEAD:
        return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


def _revision(connection: Connection, database: Database) -> str | None:
    tables = inspect(connection).get_table_names()
    if "alembic_version" not in tables:
        if tables and database.dialect == "sqlite":
            raise DatabaseUnusable(database.location, "it belongs to another program; configure another file")
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    if revision is not None and revision not in REVISIONS:
        raise DatabaseUnusable(
            database.location,
            f"its schema is {revision!r} and this version knows none after {HEAD!r}; upgrade cleveragents",
        )
    return revision
