"""Runs the migrations over a connection; the caller owns the transaction, the lock and the commit."""

from __future__ import annotations

from alembic import context

from cleveragents.storage.tables import METADATA

__all__: list[str] = []

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
