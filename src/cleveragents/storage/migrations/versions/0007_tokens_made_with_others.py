"""The issuer of each token, so that a token is revoked together with its issuer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0007"
down_revision = "0006"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column. It is unknown for existing tokens; they stay valid until they are revoked."""
    op.add_column("tokens", sa.Column("made_with", _ID, nullable=True))
    op.create_index("ix_tokens_made_with", "tokens", ["made_with"], unique=False)
