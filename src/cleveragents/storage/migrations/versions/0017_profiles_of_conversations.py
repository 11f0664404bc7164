"""The profile of the plans that a conversation starts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add the column. The plans of earlier conversations have the default profile."""
    op.add_column("conversations", sa.Column("profile", sa.Text(), nullable=True))
