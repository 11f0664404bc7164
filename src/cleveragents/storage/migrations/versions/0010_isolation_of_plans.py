"""The isolation of a plan's commands, and of the commands that a worker runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the columns; the isolation of plans that ran before is unknown."""
    op.add_column("plans", sa.Column("isolation", sa.Text(), nullable=True))
    op.add_column("workers", sa.Column("isolation", sa.Text(), nullable=True))
