"""The answer of a plan: the last report of its executor."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column. Plans that ran before have no answer."""
    op.add_column("plans", sa.Column("answer", sa.Text(), nullable=True))
