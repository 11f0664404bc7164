"""The object created for a request with an idempotency key, so that a retry finds it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0008"
down_revision = "0007"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column. It is unknown for running requests; they are executed as before."""
    op.add_column("idempotency_keys", sa.Column("made", _ID, nullable=True))
