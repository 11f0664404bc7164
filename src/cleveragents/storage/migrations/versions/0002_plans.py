"""Plans: their sandboxes, tool calls, checks, reviews and applies; actions; trusted config."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0002"
down_revision = "0001"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables, and columns that allow a single change to be reversed."""
    op.add_column("change_entries", sa.Column("before_mode", sa.Integer(), nullable=True))
    _plans()
    _sandboxes()
    _tool_calls()
    _reviews()
    _applies()
    _actions()


def _plans() -> None:
    op.create_table(
        "plans",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("goal", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=True),
        sa.Column("waiting_for", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("parent_id", _ID, nullable=True),
        sa.Column("root_id", _ID, nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_plans"),
        sa.UniqueConstraint("id", name="uq_plans_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_plans_resource", "plans", ["resource"], unique=False)
    op.create_index("ix_plans_parent_id", "plans", ["parent_id"], unique=False)


def _sandboxes() -> None:
    op.create_table(
        "sandboxes",
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("directory", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", name="pk_sandboxes"),
    )


def _tool_calls() -> None:
    op.create_table(
        "tool_calls",
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("call_id", _ID, nullable=False),
        sa.Column("step", sa.Text(), nullable=True),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("changeset_id", _ID, nullable=True),
        sa.Column("approval", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("plan_id", "number", name="pk_tool_calls"),
        sa.UniqueConstraint("call_id", name="uq_tool_calls_call_id"),
    )
    op.create_table(
        "check_runs",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("required", sa.Boolean(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.Column("tree", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_check_runs"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_check_runs_plan_id", "check_runs", ["plan_id"], unique=False)


def _reviews() -> None:
    op.create_table(
        "reviews",
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("plan_id", "kind", "subject", name="pk_reviews"),
    )


def _applies() -> None:
    op.create_table(
        "applies",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", _ID, nullable=False),
        sa.Column("plan_id", _ID, nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("journal", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_applies"),
        sa.UniqueConstraint("id", name="uq_applies_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_applies_plan_id", "applies", ["plan_id"], unique=False)
    op.create_index("ix_applies_resource", "applies", ["resource"], unique=False)


def _actions() -> None:
    op.create_table(
        "actions",
        sa.Column("name", _ID, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_actions"),
    )
    op.create_table(
        "trusts",
        sa.Column("path", _ID, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("trusted_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("path", "digest", name="pk_trusts"),
    )
