"""Inserts that can say what happens to a row that is there already, for each kind of database.

PostgreSQL is a tenth of what a quick command would load of SQLAlchemy, so it is loaded where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Table
from sqlalchemy.dialects import sqlite

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

__all__ = ["insert_into"]


def insert_into(table: Table, dialect: str) -> sqlite.Insert | postgresql.Insert:
    """An insert for that kind of database (`Database.dialect`)."""
    if dialect == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)
