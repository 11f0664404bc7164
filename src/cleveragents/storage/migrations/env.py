"""Runs the migrations over a connection whose transaction, lock and commit are the caller's."""

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
