"""The remedies of the error of a turn."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add the column. The errors of earlier turns have no remedies."""
    op.add_column("conversation_turns", sa.Column("remedies", sa.Text(), nullable=True))
