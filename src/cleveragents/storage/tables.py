"""The tables as SQLAlchemy Core metadata: the target of the migrations for SQLite and PostgreSQL.

Ids compare by code point on every database (collation "C" on PostgreSQL), so that "after this id" means the
same everywhere. The times of jobs are microseconds since 1970, because integers compare in the same way on
every database, while the order of texts depends on collations. Events store times as text, because the audit
log hashes text.
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
    "approval_rules",
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
    """Return the type of ids, compared by code point."""
    return String().with_variant(String(collation="C"), "postgresql")


def number_type() -> TypeEngine[int]:
    """Return the type of row numbers."""
    # Only INTEGER PRIMARY KEY is SQLite's own row number, and increments automatically.
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

# The order in which jobs are claimed; ended jobs are not in it, so it stays small. With kind and limit in the
# index, the jobs of a full kind are skipped together. The PostgreSQL index is only in the migration: declared
# here, it would load that dialect into every process on SQLite, too.
Index(
    "ix_jobs_claimable",
    jobs.c.priority.desc(),
    jobs.c.number,
    jobs.c.kind,
    jobs.c.at_most,
    jobs.c.queue,
    sqlite_where=text("state = 'queued'"),
)
# The number of running jobs of a kind that has a limit.
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

# The changesets of a plan from a given one on.
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

# Events, written in the transaction in which they happened, until the sequencer has placed them.
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

# The audit log. The sequencer assigns positions without gaps, so the database must not generate them.
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
# The events of one plan or job are queried often.
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

# A parent identifies each of its sub-plans by a key.
Index("ix_plans_parent_id_key", plans.c.parent_id, plans.c.key, unique=True)

# The location of a plan's sandbox. `state`: making, ready, removing; a row is deleted with its directory.
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

# One row per tool call of a plan. The number is the checkpoint before the call: it restores the state
# recorded under lower numbers.
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
    Column("rule", id_type()),
    Column("reason", Text),
)

# Finds a step that was called among any number of calls.
Index("ix_tool_calls_plan_id_step_number", tool_calls.c.plan_id, tool_calls.c.step, tool_calls.c.number)

# Command lines that people allowed in advance: in a project, in one of its repositories (`resource`), or in
# one tree of plans (`root_id`). `words` is a list; with `more`, further arguments may follow.
approval_rules = Table(
    "approval_rules",
    METADATA,
    Column("id", id_type(), primary_key=True),
    Column("project", id_type(), nullable=False, index=True),
    Column("resource", Text),
    Column("root_id", id_type(), index=True),
    Column("words", Text, nullable=False),
    Column("more", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("created_by", Text),
)

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

# Changes that the reviewer excluded. `subject` is a path or the id of a changeset, depending on `kind`.
reviews = Table(
    "reviews",
    METADATA,
    Column("plan_id", id_type(), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("verdict", Text, nullable=False),
)

# The journal of applies and undos. `journal` holds the state of every file before and after.
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

# Trusted config of repositories, by path and content.
trusts = Table(
    "trusts",
    METADATA,
    Column("path", id_type(), primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("trusted_at", BigInteger, nullable=False),
)
