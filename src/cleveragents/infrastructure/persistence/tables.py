"""The tables, as SQLAlchemy Core metadata: what SQLite and PostgreSQL are both migrated to.

Ids compare by code point on every database ("C" on PostgreSQL), so "after this id" means the same
everywhere. The times of jobs are microseconds since 1970: integers compare alike everywhere, text depends
on collations. Events keep theirs as text, because the audit log hashes text.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeEngine

__all__ = ["METADATA", "change_entries", "changesets", "events", "jobs", "outbox"]

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def _id() -> TypeEngine[str]:
    return String().with_variant(String(collation="C"), "postgresql")


def _number() -> TypeEngine[int]:
    # Only INTEGER PRIMARY KEY is SQLite's own row number, and numbers itself.
    return BigInteger().with_variant(Integer(), "sqlite")


jobs = Table(
    "jobs",
    METADATA,
    Column("number", _number(), primary_key=True, autoincrement=True),
    Column("id", _id(), nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("owner_id", Text),
    Column("owner_host", Text),
    Column("owner_pid", BigInteger),
    Column("owner_started_ticks", BigInteger),
    Column("cancel_reason", Text),
    Column("result", Text),
    Column("error", Text),
    Column("key", Text, unique=True),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("not_before", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

# The order in which jobs are claimed; ended jobs are not in it, so it stays small.
Index(
    "ix_jobs_claimable",
    jobs.c.priority.desc(),
    jobs.c.number,
    sqlite_where=text("state = 'queued'"),
    postgresql_where=text("state = 'queued'"),
)

changesets = Table(
    "changesets",
    METADATA,
    Column("number", _number(), primary_key=True, autoincrement=True),
    Column("id", _id(), nullable=False, unique=True),
    Column("plan_id", _id(), nullable=False, index=True),
    Column("closed", Boolean, nullable=False),
    sqlite_autoincrement=True,
)

change_entries = Table(
    "change_entries",
    METADATA,
    Column("changeset_id", _id(), ForeignKey(changesets.c.id), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("old_path", Text),
    Column("before_hash", Text),
    Column("after_hash", Text),
    Column("mode", Integer),
    Column("tool_call_id", Text),
    Column("key", Text),
    UniqueConstraint("changeset_id", "key"),
    sqlite_with_rowid=False,
)

# What happened, written in the transaction in which it happened, until the sequencer has placed it.
outbox = Table(
    "outbox",
    METADATA,
    Column("number", _number(), primary_key=True, autoincrement=True),
    Column("event_id", _id(), nullable=False, unique=True),
    Column("event_type", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("occurred_at", Text, nullable=False),
    Column("payload", Text, nullable=False),
    sqlite_autoincrement=True,
)

# The audit log. The sequencer gives positions itself, gapless, so they are not the database's to give.
events = Table(
    "events",
    METADATA,
    Column("position", _number(), primary_key=True, autoincrement=False),
    Column("event_id", _id(), nullable=False, unique=True),
    Column("event_type", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("occurred_at", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("previous_hash", Text, nullable=False),
    Column("hash", Text, nullable=False),
)
