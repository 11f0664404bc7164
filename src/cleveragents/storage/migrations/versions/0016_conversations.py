"""Conversations and their turns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0016"
down_revision = "0015"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "conversations",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project", _ID, nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("resource_name", _ID, nullable=True),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("forked_from", _ID, nullable=True),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("summary_turn", sa.Integer(), nullable=False),
        sa.Column("turns", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=True),
        sa.Column("owner_host", sa.Text(), nullable=True),
        sa.Column("owner_pid", sa.BigInteger(), nullable=True),
        sa.Column("owner_started_ticks", sa.BigInteger(), nullable=True),
        sa.Column("stop_requested", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
    )
    op.create_index("ix_conversations_project", "conversations", ["project"], unique=False)
    op.create_table(
        "conversation_turns",
        sa.Column("conversation_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("author", sa.Text(), nullable=True),
        sa.Column("read_only", sa.Boolean(), nullable=False),
        sa.Column("first_output", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("conversation_id", "number", name="pk_conversation_turns"),
    )
