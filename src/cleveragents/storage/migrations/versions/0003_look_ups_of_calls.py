"""Indexes, so that a tool call costs the same however many calls its plan has made."""

from __future__ import annotations

from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add indexes that find the calls of a step, and the changesets of a plan after a given changeset."""
    columns = ["plan_id", "step", "number"]
    op.create_index("ix_tool_calls_plan_id_step_number", "tool_calls", columns, unique=False)
    op.create_index("ix_changesets_plan_id_number", "changesets", ["plan_id", "number"], unique=False)
    op.drop_index("ix_changesets_plan_id", table_name="changesets")
