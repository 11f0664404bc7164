"""Which token a token was made with, so that it ends with that."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0007"
down_revision = "0006"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Of those that are there already it is not known; they stay until they are revoked themselves."""
    op.add_column("tokens", sa.Column("made_with", _ID, nullable=True))
    op.create_index("ix_tokens_made_with", "tokens", ["made_with"], unique=False)
