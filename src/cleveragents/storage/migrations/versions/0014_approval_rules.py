"""Rules that approve commands in advance, and the reasons of denied calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0014"
down_revision = "0013"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table, and to each call the rule that approved it or the reason why a person denied it."""
    op.create_table(
        "approval_rules",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project", _ID, nullable=False),
        sa.Column("resource", sa.Text(), nullable=True),
        sa.Column("root_id", _ID, nullable=True),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("more", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_approval_rules"),
    )
    op.create_index("ix_approval_rules_project", "approval_rules", ["project"], unique=False)
    op.create_index("ix_approval_rules_root_id", "approval_rules", ["root_id"], unique=False)
    op.add_column("tool_calls", sa.Column("rule", _ID, nullable=True))
    op.add_column("tool_calls", sa.Column("reason", sa.Text(), nullable=True))
