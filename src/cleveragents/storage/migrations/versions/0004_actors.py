"""Actors: checkpoints of their graphs, decisions, budgets and model calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0004"
down_revision = "0003"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables."""
    _graphs()
    _decisions()
    _budgets()


def _graphs() -> None:
    op.create_table(
        "graph_checkpoints",
        sa.Column("thread_id", _ID, nullable=False),
        sa.Column("namespace", _ID, nullable=False),
        sa.Column("checkpoint_id", _ID, nullable=False),
        sa.Column("parent_id", _ID, nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("metadata", sa.LargeBinary(), nullable=False),
        sa.Column("versions", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "namespace", "checkpoint_id", name="pk_graph_checkpoints"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "graph_values",
        sa.Column("thread_id", _ID, nullable=False),
        sa.Column("namespace", _ID, nullable=False),
        sa.Column("channel", _ID, nullable=False),
        sa.Column("version", _ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("thread_id", "namespace", "channel", "version", name="pk_graph_values"),
    )
    op.create_table(
        "graph_writes",
        sa.Column("thread_id", _ID, nullable=False),
        sa.Column("namespace", _ID, nullable=False),
        sa.Column("checkpoint_id", _ID, nullable=False),
        sa.Column("task_id", _ID, nullable=False),
        sa.Column("index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("task_path", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint(
            "thread_id", "namespace", "checkpoint_id", "task_id", "index", name="pk_graph_writes"
        ),
    )


def _decisions() -> None:
    op.create_table(
        "decisions",
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("choice", sa.Text(), nullable=False),
        sa.Column("rationale", sa.Text(), nullable=False),
        sa.Column("alternatives", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("checkpoint", sa.Integer(), nullable=True),
        sa.Column("context", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", "number", name="pk_decisions"),
    )


def _budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("root_id", _ID, nullable=False),
        sa.Column("limit_picodollars", sa.BigInteger(), nullable=True),
        sa.Column("limit_tokens", sa.BigInteger(), nullable=True),
        sa.Column("limit_steps", sa.BigInteger(), nullable=True),
        sa.Column("limit_seconds", sa.Float(), nullable=True),
        sa.Column("spent_picodollars", sa.BigInteger(), nullable=False),
        sa.Column("spent_tokens", sa.BigInteger(), nullable=False),
        sa.Column("spent_steps", sa.BigInteger(), nullable=False),
        sa.Column("reserved_picodollars", sa.BigInteger(), nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reserved_steps", sa.BigInteger(), nullable=False),
        sa.Column("warned", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("root_id", name="pk_budgets"),
    )
    op.create_table(
        "model_calls",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("root_id", _ID, nullable=False),
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("worst_picodollars", sa.BigInteger(), nullable=False),
        sa.Column("worst_tokens", sa.BigInteger(), nullable=False),
        sa.Column("worst_steps", sa.BigInteger(), nullable=False),
        sa.Column("picodollars", sa.BigInteger(), nullable=True),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_model_calls"),
        sa.UniqueConstraint("id", name="uq_model_calls_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_model_calls_plan_id_key", "model_calls", ["plan_id", "key"], unique=False)
