"""Plan trees: keys of sub-plans, concurrency limits for jobs of one kind, corrections."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0005"
down_revision = "0004"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add columns, an index and a table."""
    op.add_column("plans", sa.Column("depth", sa.Integer(), server_default="0", nullable=False))
    op.add_column("plans", sa.Column("key", _ID, nullable=True))
    op.create_index("ix_plans_parent_id_key", "plans", ["parent_id", "key"], unique=True)
    op.add_column("jobs", sa.Column("at_most", sa.Integer(), nullable=True))
    _indexes_of_jobs()
    op.create_table(
        "corrections",
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("decision", sa.Integer(), nullable=True),
        sa.Column("guidance", sa.Text(), nullable=False),
        sa.Column("superseded", sa.Text(), nullable=False),
        sa.Column("checkpoint", sa.Integer(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("by_itself", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", "number", name="pk_corrections"),
    )


def _indexes_of_jobs() -> None:
    op.drop_index("ix_jobs_claimable", "jobs")
    op.create_index(
        "ix_jobs_claimable",
        "jobs",
        [sa.literal_column("priority DESC"), "number", "kind", "at_most"],
        unique=False,
        sqlite_where=sa.text("state = 'queued'"),
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index(
        "ix_jobs_running",
        "jobs",
        ["kind"],
        unique=False,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
