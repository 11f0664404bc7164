"""Positions of webhooks in the audit log, with the process that sends at present."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0015"
down_revision = "0014"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "deliveries",
        sa.Column("receiver", _ID, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("owner", _ID, nullable=False),
        sa.Column("leased_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("receiver", name="pk_deliveries"),
    )
