"""The statements that every call of a model needs, compiled once for each kind of database."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from cleveragents.storage.actor_tables import budgets, model_calls
from cleveragents.storage.prepared_statement import PreparedStatement

__all__ = ["AMOUNTS", "BudgetStatements", "budget_statements"]

AMOUNTS = ("picodollars", "tokens", "steps")

_COUNTED = tuple(f"{kind}_{name}" for kind in ("spent", "reserved") for name in AMOUNTS)
_BEGUN = ("id", "root_id", "plan_id", "key", "actor", "node", "model", "state", "started_at")
_WORST = tuple(f"worst_{name}" for name in AMOUNTS)
_ENDED = ("state", "ended_at", "picodollars", "input_tokens", "output_tokens", "cached_tokens")


class BudgetStatements:
    """Immutable once made; any thread may use it, each with a connection of its own."""

    def __init__(self, dialect: str) -> None:
        of_root = budgets.c.root_id == bindparam("root")
        self._look = PreparedStatement(select(budgets).where(of_root), dialect)
        self._hold = PreparedStatement(select(budgets).where(of_root).with_for_update(), dialect)
        self._keep = PreparedStatement(update(budgets).where(of_root).values(_named(_COUNTED)), dialect)
        self._again = PreparedStatement(
            select(model_calls).where(
                model_calls.c.plan_id == bindparam("plan"),
                model_calls.c.state == bindparam("open"),
                model_calls.c.key == bindparam("name"),
            ),
            dialect,
        )
        self._begin = PreparedStatement(model_calls.insert().values(_named((*_BEGUN, *_WORST))), dialect)
        self._end = PreparedStatement(
            update(model_calls)
            .where(model_calls.c.id == bindparam("call"), model_calls.c.state == bindparam("open"))
            .values(_named(_ENDED)),
            dialect,
        )

    def look(self, connection: Connection, root_id: str) -> Mapping[str, Any] | None:
        """The budget's row."""
        return self._look.run(connection, {"root": root_id}).first()

    def hold(self, connection: Connection, root_id: str) -> Mapping[str, Any] | None:
        """The budget's row, nobody else's to spend from until the transaction is over."""
        return self._hold.run(connection, {"root": root_id}).first()

    def keep(self, connection: Connection, root_id: str, counted: Mapping[str, int]) -> None:
        """What is spent and reserved of it now."""
        self._keep.run(connection, {"root": root_id, **counted})

    def open_under(self, connection: Connection, plan_id: str, key: str) -> list[Mapping[str, Any]]:
        """The plan's calls of that name that nobody has ended."""
        wanted = {"plan": plan_id, "open": "reserved", "name": key}
        return self._again.run(connection, wanted).every()

    def begin(self, connection: Connection, call: Mapping[str, object]) -> None:
        """Adds a call."""
        self._begin.run(connection, call)

    def end(self, connection: Connection, call_id: str, ended: Mapping[str, object]) -> bool:
        """Ends a call; False if it had ended. What the provider did not say is not known."""
        values: dict[str, Any] = dict.fromkeys(_ENDED)
        return bool(
            self._end.run(connection, {"call": call_id, "open": "reserved", **values, **ended}).rowcount
        )


@cache
def budget_statements(dialect: str) -> BudgetStatements:
    """Those for that kind of database."""
    return BudgetStatements(dialect)


def _named(columns: tuple[str, ...]) -> dict[str, Any]:
    return {column: bindparam(column) for column in columns}
