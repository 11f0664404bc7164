"""Inserts with conflict handling for each kind of database.

The PostgreSQL dialect is a tenth of the SQLAlchemy code that a quick command loads, so it is imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Table
from sqlalchemy.dialects import sqlite

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

__all__ = ["insert_into"]


def insert_into(table: Table, dialect: str) -> sqlite.Insert | postgresql.Insert:
    """Return an insert for this kind of database (`Database.dialect`)."""
    if dialect == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)
