"""A shared service: users, projects, workers, shared queues with limits, output of plans, and contents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0006"
down_revision = "0005"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add columns, an index and tables."""
    _jobs()
    _people()
    _places()
    op.add_column("sandboxes", sa.Column("home", sa.Text(), nullable=True))
    op.create_table(
        "audit_home",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("home", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit_home"),
    )
    op.create_index("ix_events_subject_position", "events", ["subject", "position"], unique=False)
    op.create_table(
        "contents",
        sa.Column("root_id", _ID, nullable=False),
        sa.Column("digest", _ID, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("root_id", "digest", name="pk_contents"),
    )
    op.create_table(
        "remote_bases",
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("base", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", name="pk_remote_bases"),
    )
    op.create_table(
        "plan_output",
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("written_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", "number", name="pk_plan_output"),
    )


def _jobs() -> None:
    op.add_column("jobs", sa.Column("queue", sa.Text(), server_default="", nullable=False))
    op.add_column("jobs", sa.Column("lanes", sa.Text(), nullable=True))
    op.drop_index("ix_jobs_claimable", "jobs")
    op.create_index(
        "ix_jobs_claimable",
        "jobs",
        [sa.literal_column("priority DESC"), "number", "kind", "at_most", "queue"],
        unique=False,
        sqlite_where=sa.text("state = 'queued'"),
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_table(
        "job_lanes",
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("lane", _ID, nullable=False),
        sa.Column("at_most", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "lane", name="pk_job_lanes"),
    )
    op.create_index("ix_job_lanes_lane_job_id", "job_lanes", ["lane", "job_id"], unique=False)
    op.create_table(
        "workers",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("home", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workers"),
    )


def _people() -> None:
    op.create_table(
        "users",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", _ID, nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("name", name="uq_users_name"),
    )
    op.create_table(
        "tokens",
        sa.Column("digest", _ID, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("user_id", _ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("issues_until", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("digest", name="pk_tokens"),
        sa.UniqueConstraint("id", name="uq_tokens_id"),
    )
    op.create_index("ix_tokens_user_id", "tokens", ["user_id"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("user_id", _ID, nullable=False),
        sa.Column("key", _ID, nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "key", name="pk_idempotency_keys"),
    )


def _places() -> None:
    op.create_table(
        "projects",
        sa.Column("name", _ID, nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("max_parallel", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_projects"),
    )
    op.create_table(
        "resources",
        sa.Column("name", _ID, nullable=False),
        sa.Column("project", _ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("location", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=True),
        sa.Column("home", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_resources"),
    )
    op.create_index("ix_resources_project", "resources", ["project"], unique=False)
