"""Budgets in a database: one row for each plan tree, and one for each model call.

Whether a call fits the budget is decided when it is reserved: one transaction locks, reads and updates the
budget's row. So if two calls fit singly but not together, only one of them is reserved.

The statements that every model call needs are compiled once for each database dialect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, bindparam, select, update

from cleveragents.core.errors import BudgetExhausted, PriceUnknown
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.identifiers import IdentifierSource
from cleveragents.core.json_value import JsonValue
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits, Spend, dollars, exceeded
from cleveragents.models.model.conversation import Usage
from cleveragents.models.ports import BudgetState, ModelCall, Reservation
from cleveragents.storage.actor_tables import budgets, model_calls
from cleveragents.storage.columns import microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.outbox import append_to_outbox
from cleveragents.storage.prepared_statement import PreparedStatement
from cleveragents.storage.rows import record_in

__all__ = [
    "AMOUNTS",
    "BudgetStatements",
    "SqlBudgetStore",
    "budget_statements",
    "limits_of",
    "open_budget",
    "raise_budget",
]


_WARN_AT = 0.9
_TOLD = ("input_tokens", "output_tokens", "cached_tokens")

AMOUNTS = ("picodollars", "tokens", "steps")

_NOTHING = {f"{kind}_{name}": 0 for kind in ("spent", "reserved") for name in AMOUNTS}

_COUNTED = tuple(f"{kind}_{name}" for kind in ("spent", "reserved") for name in AMOUNTS)
_BEGUN = ("id", "root_id", "plan_id", "key", "actor", "node", "model", "state", "started_at")
_WORST = tuple(f"worst_{name}" for name in AMOUNTS)
_ENDED = ("state", "ended_at", "picodollars", "input_tokens", "output_tokens", "cached_tokens")


class SqlBudgetStore:
    """Budgets by the root plan of a tree. Every method is one atomic step, from any process.

    Spent plus reserved never exceeds a limit. Reservations of a dead worker stay reserved until `forfeit`
    counts them as spent. Any thread may share the store: its only state is the database.
    """

    def __init__(self, database: Database, identifiers: IdentifierSource) -> None:
        self._database = database
        self._identifiers = identifiers
        self._sql = budget_statements(database.dialect)

    def open(self, root_id: str, limits: BudgetLimits, *, now: datetime) -> BudgetState:
        """Return the budget, creating it if it is missing. An existing budget keeps its limits."""

        def unit(connection: Connection) -> BudgetState:
            row = self._sql.hold(connection, root_id)
            if row is not None:  # guard: an open budget keeps its spend
                return _view(row)
            return open_budget(connection, self._identifiers, root_id, limits, now)

        with self._database.read() as connection:
            row = self._sql.look(connection, root_id)
        return self._database.write(unit) if row is None else _view(row)

    def view(self, root_id: str) -> BudgetState:
        """Return the budget. A budget that was never opened has no limits and nothing spent."""
        with self._database.read() as connection:
            row = self._sql.look(connection, root_id)
        return BudgetState(root_id, BudgetLimits(), Spend(), Spend()) if row is None else _view(row)

    def reserve(
        self,
        root_id: str,
        plan_id: str,
        worst: Spend,
        *,
        key: str,
        actor: str,
        node: str,
        model: str,
        now: datetime,
        priced: bool = True,
    ) -> Reservation:
        """Reserve the worst case of a call.

        Raises `BudgetExhausted` if it does not fit, or `PriceUnknown` if money is limited and the call is not
        `priced`. Nothing is reserved in either case.

        A repeated `key` (a call that is made again after a crash) forfeits the earlier reservation in the
        same step. Spending 90 % of a limit emits an event, once per limit.
        """
        reservation = Reservation(self._identifiers.new(), root_id, plan_id, worst)

        def unit(connection: Connection) -> Reservation:
            row = self._sql.hold(connection, root_id) or _opened(connection, root_id, BudgetLimits())
            again = self._sql.open_under(connection, plan_id, key)
            view = _forfeited(connection, _view(row), again, now)
            if not priced and view.limits.picodollars is not None:  # guard: unknown is not free
                raise PriceUnknown(model)
            wanted = view.spent + view.reserved + worst
            broken = exceeded(view.limits, wanted)
            if broken:  # guard: a call that does not fit is not reserved
                raise _exhausted(plan_id, view, worst, broken[0])
            call: dict[str, Any] = {
                "id": reservation.id,
                "root_id": root_id,
                "plan_id": plan_id,
                "key": key,
                "actor": actor,
                "node": node,
                "model": model,
                "state": "reserved",
                "started_at": microseconds(now),
            }
            self._sql.begin(connection, call | _columns("worst", worst))
            self._sql.keep(connection, root_id, _counted(view.spent, view.reserved + worst))
            facts: dict[str, JsonValue] = {"call": reservation.id, "model": model, "node": f"{actor}:{node}"}
            append_to_outbox(connection, self._event(EventType.MODEL_CALL_STARTED, plan_id, now, facts))
            return reservation

        return self._database.write(unit)

    def settle(
        self,
        reservation: Reservation,
        spent: Spend,
        usage: Usage | None,
        *,
        now: datetime,
        priced: bool = True,
    ) -> None:
        """Replace the reservation by the actual spend.

        Settling again has no effect. The cost of a call with an unknown price stays unknown, not zero.
        """
        tokens: dict[str, Any] = {"picodollars": spent.picodollars if priced else None}
        if usage is not None:
            tokens["input_tokens"] = usage.input_tokens
            tokens["output_tokens"] = usage.output_tokens
            tokens["cached_tokens"] = usage.cached_tokens
        self._end(reservation, "settled", spent, tokens, now)

    def release(self, reservation: Reservation, *, now: datetime) -> None:
        """Cancel the reservation of a call that was never made."""
        self._end(reservation, "released", Spend(), {"picodollars": 0}, now)

    def forfeit(self, plan_id: str, *, now: datetime) -> Spend:
        """Count the reservations of earlier, dead runs of the plan as spent, and return their sum."""

        def unit(connection: Connection) -> Spend:
            open_calls = connection.execute(_reserved(plan_id)).mappings().all()
            if not open_calls:
                return Spend()
            row = self._sql.hold(connection, str(open_calls[0]["root_id"]))
            assert row is not None  # the budget exists before its first call
            # Read again: the previous holder of the row may have settled a call.
            left = connection.execute(_reserved(plan_id)).mappings().all()
            _forfeited(connection, _view(row), left, now)
            return _sum(left)

        with self._database.read() as connection:
            if connection.execute(_reserved(plan_id)).first() is None:  # true for nearly every run
                return Spend()
        return self._database.write(unit)

    def raise_limits(self, root_id: str, limits: BudgetLimits, *, now: datetime) -> BudgetState:
        """Set new limits. A limit of None stays unchanged."""
        return self._database.write(
            lambda connection: raise_budget(connection, self._identifiers, root_id, limits, now)
        )

    def calls_of(self, plan_id: str) -> Sequence[ModelCall]:
        """Return the calls of a plan in order."""
        wanted = select(model_calls).where(model_calls.c.plan_id == plan_id).order_by(model_calls.c.number)
        with self._database.read() as connection:
            return [_call(row) for row in connection.execute(wanted).mappings()]

    def _end(
        self, reservation: Reservation, state: str, spent: Spend, tokens: Mapping[Any, Any], now: datetime
    ) -> None:
        def unit(connection: Connection) -> None:
            row = self._sql.hold(connection, reservation.root_id)
            ended = {"state": state, "ended_at": microseconds(now), **tokens}
            if row is None or not self._sql.end(connection, reservation.id, ended):  # guard: counted once
                return
            view = _view(row)
            kept = BudgetState(
                view.root_id, view.limits, view.spent + spent, _minus(view.reserved, reservation.worst)
            )
            self._sql.keep(connection, kept.root_id, _counted(kept.spent, kept.reserved))
            facts: dict[str, JsonValue] = {"call": reservation.id, "state": state, "tokens": spent.tokens}
            facts |= {name: tokens[name] for name in _TOLD if name in tokens}
            told = self._event(EventType.MODEL_CALL_ENDED, reservation.plan_id, now, facts)
            append_to_outbox(connection, told)
            self._warn(connection, kept, str(row["warned"]), now)

        self._database.write(unit)

    def _warn(self, connection: Connection, view: BudgetState, warned: str, now: datetime) -> None:
        """Emit an event, once for each limit, when a limit is nearly spent."""
        before = set(filter(None, warned.split(",")))
        near = {
            name
            for name in AMOUNTS
            if (limit := getattr(view.limits, name)) and getattr(view.spent, name) >= _WARN_AT * limit
        }
        new = near - before
        if not new:
            return
        values = {"warned": ",".join(sorted(before | near))}
        connection.execute(update(budgets).where(budgets.c.root_id == view.root_id).values(values))
        facts: dict[str, JsonValue] = {"of": sorted(new), "limits": view.limits.to_json()}
        told = self._event(EventType.BUDGET_NEARLY_SPENT, view.root_id, now, facts)
        append_to_outbox(connection, told)

    def _event(
        self, kind: EventType, subject: str, now: datetime, facts: Mapping[str, JsonValue]
    ) -> DomainEvent:
        return DomainEvent(kind, subject, self._identifiers.new(), now, facts)


def open_budget(
    connection: Connection, identifiers: IdentifierSource, root_id: str, limits: BudgetLimits, now: datetime
) -> BudgetState:
    """Store a budget that is missing, with its event, in the caller's transaction."""
    facts: dict[str, JsonValue] = {"limits": limits.to_json()}
    append_to_outbox(connection, DomainEvent(EventType.BUDGET_OPENED, root_id, identifiers.new(), now, facts))
    return _view(_opened(connection, root_id, limits))


def raise_budget(
    connection: Connection, identifiers: IdentifierSource, root_id: str, limits: BudgetLimits, now: datetime
) -> BudgetState:
    """Set new limits, with the event, in the caller's transaction. A limit of None and the spending stay."""
    held = select(budgets).where(budgets.c.root_id == root_id).with_for_update()
    row = connection.execute(held).mappings().first() or _opened(connection, root_id, BudgetLimits())
    raised = {name: value for name, value in _limits_row(limits).items() if value is not None}
    if raised:
        # A new limit gets a new warning.
        values = {**raised, "warned": ""}
        connection.execute(update(budgets).where(budgets.c.root_id == root_id).values(values))
        facts: dict[str, JsonValue] = {"limits": limits.to_json()}
        raising = DomainEvent(EventType.BUDGET_RAISED, root_id, identifiers.new(), now, facts)
        append_to_outbox(connection, raising)
    return _view({**row, **raised})


def limits_of(connection: Connection, root_id: str) -> BudgetLimits:
    """Return the limits of a budget. A budget that was never opened has none."""
    row = connection.execute(select(budgets).where(budgets.c.root_id == root_id)).mappings().first()
    return BudgetLimits() if row is None else _view(row).limits


def _opened(connection: Connection, root_id: str, limits: BudgetLimits) -> Mapping[Any, Any]:
    row = {"root_id": root_id, "warned": "", **_limits_row(limits), **_NOTHING}
    connection.execute(budgets.insert(), row)
    return row


def _limits_row(limits: BudgetLimits) -> dict[str, Any]:
    return {
        "limit_picodollars": limits.picodollars,
        "limit_tokens": limits.tokens,
        "limit_steps": limits.steps,
        "limit_seconds": limits.seconds,
    }


def _view(row: Mapping[Any, Any]) -> BudgetState:
    limits = BudgetLimits(
        picodollars=row["limit_picodollars"],
        tokens=row["limit_tokens"],
        steps=row["limit_steps"],
        seconds=row["limit_seconds"],
    )
    return BudgetState(str(row["root_id"]), limits, _spend(row, "spent"), _spend(row, "reserved"))


def _spend(row: Mapping[Any, Any], kind: str) -> Spend:
    return Spend(*(int(row[f"{kind}_{name}"]) for name in AMOUNTS))


def _columns(kind: str, spend: Spend) -> dict[str, int]:
    return {f"{kind}_{name}": getattr(spend, name) for name in AMOUNTS}


def _counted(spent: Spend, reserved: Spend) -> dict[str, int]:
    return _columns("spent", spent) | _columns("reserved", reserved)


def _reserved(plan_id: str) -> Select[Any]:
    return select(model_calls).where(model_calls.c.plan_id == plan_id, model_calls.c.state == "reserved")


def _sum(calls: Sequence[Mapping[Any, Any]]) -> Spend:
    total = Spend()
    for call in calls:
        total = total + _spend(call, "worst")
    return total


def _forfeited(
    connection: Connection, view: BudgetState, calls: Sequence[Mapping[Any, Any]], now: datetime
) -> BudgetState:
    """Count these calls as spent and return the budget. Their actual cost will never be known."""
    if not calls:
        return view
    for call in calls:
        lost = update(model_calls).where(model_calls.c.id == call["id"])
        values = {
            "state": "forfeited",
            "ended_at": microseconds(now),
            # A worst case of zero means that the price was unknown.
            "picodollars": call["worst_picodollars"] or None,
        }
        connection.execute(lost.values(values))
    lost_spend = _sum(calls)
    kept = BudgetState(view.root_id, view.limits, view.spent + lost_spend, _minus(view.reserved, lost_spend))
    counted = _counted(kept.spent, kept.reserved)
    connection.execute(update(budgets).where(budgets.c.root_id == view.root_id).values(counted))
    return kept


def _minus(whole: Spend, part: Spend) -> Spend:
    return whole + Spend(-part.picodollars, -part.tokens, -part.steps)


def _exhausted(plan_id: str, view: BudgetState, worst: Spend, limit: str) -> BudgetExhausted:
    name = "picodollars" if limit == "money" else limit
    amounts = [getattr(part, name) for part in (view.spent, view.reserved, worst)]
    spent, reserved, more = (dollars(n) if limit == "money" else f"{n:,}" for n in amounts)
    most = getattr(view.limits, name)
    allowed = dollars(most) if limit == "money" else f"{most:,}"
    unit = "" if limit == "money" else f" {limit}"
    what = f"{spent} of {allowed}{unit} spent, {reserved} reserved; the next call may use up to {more}"
    # A limit is a total. This is the lowest one that allows the call; money is in whole cents.
    least = sum(amounts)
    if limit == "money":
        return BudgetExhausted(plan_id, what, "usd", -(-least * 100 // PICODOLLARS) / 100)
    return BudgetExhausted(plan_id, what, limit, least)


def _call(row: Mapping[Any, Any]) -> ModelCall:
    known = row["input_tokens"] is not None
    usage = Usage(row["input_tokens"], row["output_tokens"], row["cached_tokens"]) if known else None
    return record_in(ModelCall, row, usage=usage)


class BudgetStatements:
    """The prepared statements of the store. Immutable; any thread may use them with its own connection."""

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
        """Return the budget's row."""
        return self._look.run(connection, {"root": root_id}).first()

    def hold(self, connection: Connection, root_id: str) -> Mapping[str, Any] | None:
        """Return the budget's row and lock it until the transaction ends."""
        return self._hold.run(connection, {"root": root_id}).first()

    def keep(self, connection: Connection, root_id: str, counted: Mapping[str, int]) -> None:
        """Store the spent and reserved amounts."""
        self._keep.run(connection, {"root": root_id, **counted})

    def open_under(self, connection: Connection, plan_id: str, key: str) -> list[Mapping[str, Any]]:
        """Return the plan's open calls with this key."""
        wanted = {"plan": plan_id, "open": "reserved", "name": key}
        return self._again.run(connection, wanted).every()

    def begin(self, connection: Connection, call: Mapping[str, object]) -> None:
        """Insert a call."""
        self._begin.run(connection, call)

    def end(self, connection: Connection, call_id: str, ended: Mapping[str, object]) -> bool:
        """End a call; return False if it has already ended. Usage that was not reported is stored as NULL."""
        values: dict[str, Any] = dict.fromkeys(_ENDED)
        return bool(
            self._end.run(connection, {"call": call_id, "open": "reserved", **values, **ended}).rowcount
        )


@cache
def budget_statements(dialect: str) -> BudgetStatements:
    """Return the statements for a database dialect."""
    return BudgetStatements(dialect)


def _named(columns: tuple[str, ...]) -> dict[str, Any]:
    return {column: bindparam(column) for column in columns}
