"""Comments on plans and on lines of their results, with their answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0013"
down_revision = "0012"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables. Plans that exist have no comments."""
    op.create_table(
        "comments",
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("by_actor", sa.Boolean(), nullable=False),
        sa.Column("anchor", sa.Text(), nullable=True),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("batch", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", "number", name="pk_comments"),
    )
    op.create_table(
        "comment_answers",
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("comment", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by_actor", sa.Boolean(), nullable=False),
        sa.Column("call", sa.Integer(), nullable=True),
        sa.Column("by_call", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", "number", name="pk_comment_answers"),
    )
