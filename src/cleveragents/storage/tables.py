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

__all__ = [
    "METADATA",
    "actions",
    "applies",
    "change_entries",
    "changesets",
    "check_runs",
    "events",
    "id_type",
    "jobs",
    "number_type",
    "outbox",
    "plans",
    "reviews",
    "sandboxes",
    "tool_calls",
    "trusts",
]

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


def id_type() -> TypeEngine[str]:
    """Ids, compared by code point."""
    return String().with_variant(String(collation="C"), "postgresql")


def number_type() -> TypeEngine[int]:
    """Row numbers."""
    # Only INTEGER PRIMARY KEY is SQLite's own row number, and numbers itself.
    return BigInteger().with_variant(Integer(), "sqlite")


jobs = Table(
    "jobs",
    METADATA,
    Column("number", number_type(), primary_key=True, autoincrement=True),
    Column("id", id_type(), nullable=False, unique=True),
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
    Column("at_most", Integer),
    Column("queue", Text, nullable=False, server_default=""),
    Column("lanes", Text),
    sqlite_autoincrement=True,
)

# The order in which jobs are claimed; ended jobs are not in it, so it stays small. By kind and bound the jobs
# of a full kind are passed over without a look at each of them. The migration says the same for PostgreSQL:
# said here, it would load that dialect into every process on SQLite, too.
Index(
    "ix_jobs_claimable",
    jobs.c.priority.desc(),
    jobs.c.number,
    jobs.c.kind,
    jobs.c.at_most,
    jobs.c.queue,
    sqlite_where=text("state = 'queued'"),
)
# How many of a kind run, for those that have a bound.
Index("ix_jobs_running", jobs.c.kind, sqlite_where=text("state = 'running'"))

changesets = Table(
    "changesets",
    METADATA,
    Column("number", number_type(), primary_key=True, autoincrement=True),
    Column("id", id_type(), nullable=False, unique=True),
    Column("plan_id", id_type(), nullable=False),
    Column("closed", Boolean, nullable=False),
    sqlite_autoincrement=True,
)

# Those of a plan, from one of them on.
Index("ix_changesets_plan_id_number", changesets.c.plan_id, changesets.c.number)

change_entries = Table(
    "change_entries",
    METADATA,
    Column("changeset_id", id_type(), ForeignKey(changesets.c.id), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("old_path", Text),
    Column("before_hash", Text),
    Column("after_hash", Text),
    Column("mode", Integer),
    Column("tool_call_id", Text),
    Column("key", Text),
    Column("before_mode", Integer),
    UniqueConstraint("changeset_id", "key"),
    sqlite_with_rowid=False,
)

# What happened, written in the transaction in which it happened, until the sequencer has placed it.
outbox = Table(
    "outbox",
    METADATA,
    Column("number", number_type(), primary_key=True, autoincrement=True),
    Column("event_id", id_type(), nullable=False, unique=True),
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
    Column("position", number_type(), primary_key=True, autoincrement=False),
    Column("event_id", id_type(), nullable=False, unique=True),
    Column("event_type", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("occurred_at", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("previous_hash", Text, nullable=False),
    Column("hash", Text, nullable=False),
)
# What happened to one plan or job is asked for again and again.
Index("ix_events_subject_position", events.c.subject, events.c.position)

plans = Table(
    "plans",
    METADATA,
    Column("number", number_type(), primary_key=True, autoincrement=True),
    Column("id", id_type(), nullable=False, unique=True),
    Column("goal", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("resource", Text, nullable=False, index=True),
    Column("phase", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("request", Text, nullable=False),
    Column("strategy", Text),
    Column("waiting_for", Text),
    Column("error", Text),
    Column("job_id", Text),
    Column("parent_id", id_type(), index=True),
    Column("root_id", id_type()),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("depth", Integer, nullable=False, server_default="0"),
    Column("key", id_type()),
    Column("project", id_type(), nullable=False, server_default="default", index=True),
    Column("isolation", Text),
    Column("answer", Text),
    sqlite_autoincrement=True,
)

# A parent knows each of its sub-plans by a key.
Index("ix_plans_parent_id_key", plans.c.parent_id, plans.c.key, unique=True)

# Where a plan's sandbox is. `state`: making, ready, removing; a row goes when its directory is gone.
sandboxes = Table(
    "sandboxes",
    METADATA,
    Column("plan_id", id_type(), primary_key=True),
    Column("strategy", Text, nullable=False),
    Column("directory", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("home", Text),
)

# One row per tool call of a plan. The number is the checkpoint before the call: what is recorded under
# lower numbers is the state it restores.
tool_calls = Table(
    "tool_calls",
    METADATA,
    Column("plan_id", id_type(), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("call_id", id_type(), nullable=False, unique=True),
    Column("step", Text),
    Column("tool", Text, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("changeset_id", id_type()),
    Column("approval", Text),
    Column("result", Text),
    Column("error", Text),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("digest", Text),
)

# A step that was called is found among any number of calls.
Index("ix_tool_calls_plan_id_step_number", tool_calls.c.plan_id, tool_calls.c.step, tool_calls.c.number)

check_runs = Table(
    "check_runs",
    METADATA,
    Column("number", number_type(), primary_key=True, autoincrement=True),
    Column("plan_id", id_type(), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("command", Text, nullable=False),
    Column("required", Boolean, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("tree", Text, nullable=False),
    Column("ended_at", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

# What the reviewer left out. `subject` is a path or a changeset's id, as `kind` says.
reviews = Table(
    "reviews",
    METADATA,
    Column("plan_id", id_type(), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("verdict", Text, nullable=False),
)

# The journal of applies and undos. `journal` names every file's state before and after.
applies = Table(
    "applies",
    METADATA,
    Column("number", number_type(), primary_key=True, autoincrement=True),
    Column("id", id_type(), nullable=False, unique=True),
    Column("plan_id", id_type(), nullable=False, index=True),
    Column("resource", Text, nullable=False, index=True),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("journal", Text, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    sqlite_autoincrement=True,
)

actions = Table(
    "actions",
    METADATA,
    Column("name", id_type(), primary_key=True),
    Column("document", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# What the user said may run, by place and content.
trusts = Table(
    "trusts",
    METADATA,
    Column("path", id_type(), primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("trusted_at", BigInteger, nullable=False),
)
