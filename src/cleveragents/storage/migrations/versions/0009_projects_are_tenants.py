"""Members of projects, and the project of every plan."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0009"
down_revision = "0008"

_ID = sa.String().with_variant(sa.String(collation="C"), "postgresql")
_DEFAULT = "default"
_PAGE = 1000

_projects = sa.table(
    "projects",
    sa.column("name"),
    sa.column("description"),
    sa.column("max_parallel"),
    sa.column("created_at"),
)
_users = sa.table("users", sa.column("id"), sa.column("role"))
_members = sa.table("members", sa.column("project"), sa.column("user_id"), sa.column("role"))
_plans = sa.table("plans", sa.column("id"), sa.column("root_id"), sa.column("request"), sa.column("project"))


def upgrade() -> None:
    """Give users their role in every project; move plans without an existing project to `default`."""
    op.create_table(
        "members",
        sa.Column("project", _ID, nullable=False),
        sa.Column("user_id", _ID, nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("project", "user_id", name="pk_members"),
    )
    op.create_index("ix_members_user_id", "members", ["user_id"], unique=False)
    op.create_table(
        "deleted_plans",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project", _ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_deleted_plans"),
    )
    op.add_column("plans", sa.Column("project", _ID, server_default=_DEFAULT, nullable=False))
    op.create_index("ix_plans_project", "plans", ["project"], unique=False)
    connection = op.get_bind()
    known = set(connection.execute(sa.select(_projects.c.name)).scalars())
    if _DEFAULT not in known:
        now = time.time_ns() // 1000
        row = {"name": _DEFAULT, "description": "", "max_parallel": None, "created_at": now}
        connection.execute(_projects.insert(), row)
        known.add(_DEFAULT)
    _keep_roles(connection, known)
    _place_plans(connection, known)


def _keep_roles(connection: sa.Connection, known: set[str]) -> None:
    # Admins are server admins: they need no membership.
    users = connection.execute(sa.select(_users).where(_users.c.role != "admin")).all()
    rows = [{"project": name, "user_id": one.id, "role": one.role} for name in sorted(known) for one in users]
    if rows:
        connection.execute(_members.insert(), rows)


def _place_plans(connection: sa.Connection, known: set[str]) -> None:
    """Set the project of each plan from its request; a tree belongs to the project of its root."""
    wanted = {
        row.id: project
        for row in _pages(connection, _plans.c.request)
        if (project := _project_in(row.request)) in known and project != _DEFAULT
    }
    move = (
        sa.update(_plans).where(_plans.c.id == sa.bindparam("moved")).values(project=sa.bindparam("wanted"))
    )
    rows = [
        {"moved": row.id, "wanted": wanted[row.root_id or row.id]}
        for row in _pages(connection, _plans.c.root_id)
        if (row.root_id or row.id) in wanted
    ]
    if rows:
        connection.execute(move, rows)


def _pages(connection: sa.Connection, column: sa.ColumnClause[Any]) -> Iterator[Any]:
    """Yield the id and this column of every plan in pages, to bound memory."""
    after = ""
    while True:
        query = sa.select(_plans.c.id, column).where(_plans.c.id > after).order_by(_plans.c.id).limit(_PAGE)
        page = connection.execute(query).all()
        if not page:
            return
        yield from page
        after = page[-1].id


def _project_in(request: str) -> str | None:
    try:
        found = json.loads(request)
    except ValueError:
        return None
    project = found.get("project") if isinstance(found, dict) else None
    return project if isinstance(project, str) else None
