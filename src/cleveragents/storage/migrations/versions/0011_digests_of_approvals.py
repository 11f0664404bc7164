"""The digest of the arguments that a person is asked to approve."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the column. Requests recorded before have no digest and are made again."""
    op.add_column("tool_calls", sa.Column("digest", sa.Text(), nullable=True))
