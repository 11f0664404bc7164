"""The first schema: jobs, changesets and their entries, the outbox, the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0001"
down_revision = None

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    _jobs()
    _changesets()
    _events()


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=True),
        sa.Column("owner_host", sa.Text(), nullable=True),
        sa.Column("owner_pid", sa.BigInteger(), nullable=True),
        sa.Column("owner_started_ticks", sa.BigInteger(), nullable=True),
        sa.Column("cancel_reason", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("not_before", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_jobs"),
        sa.UniqueConstraint("id", name="uq_jobs_id"),
        sa.UniqueConstraint("key", name="uq_jobs_key"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_jobs_claimable",
        "jobs",
        [sa.literal_column("priority DESC"), "number"],
        unique=False,
        sqlite_where=sa.text("state = 'queued'"),
        postgresql_where=sa.text("state = 'queued'"),
    )


def _changesets() -> None:
    op.create_table(
        "changesets",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_changesets"),
        sa.UniqueConstraint("id", name="uq_changesets_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_changesets_plan_id", "changesets", ["plan_id"], unique=False)
    op.create_table(
        "change_entries",
        sa.Column("changeset_id", _ID, nullable=False),
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("old_path", sa.Text(), nullable=True),
        sa.Column("before_hash", sa.Text(), nullable=True),
        sa.Column("after_hash", sa.Text(), nullable=True),
        sa.Column("mode", sa.Integer(), nullable=True),
        sa.Column("tool_call_id", sa.Text(), nullable=True),
        sa.Column("key", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["changeset_id"], ["changesets.id"], name="fk_change_entries_changeset_id"),
        sa.PrimaryKeyConstraint("changeset_id", "sequence", name="pk_change_entries"),
        sa.UniqueConstraint("changeset_id", "key", name="uq_change_entries_changeset_id_key"),
        sqlite_with_rowid=False,
    )


def _events() -> None:
    op.create_table(
        "outbox",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("event_id", _ID, nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("occurred_at", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_outbox"),
        sa.UniqueConstraint("event_id", name="uq_outbox_event_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "events",
        sa.Column("position", _NUMBER, autoincrement=False, nullable=False),
        sa.Column("event_id", _ID, nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("occurred_at", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("previous_hash", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_events"),
        sa.UniqueConstraint("event_id", name="uq_events_event_id"),
    )
