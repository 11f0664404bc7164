"""Output of plans and conversations in a database: numbered and bounded in the transaction that adds it.

The row of the plan or conversation is locked during the transaction. So concurrent appends are numbered one
after the other, and a deleted plan gets no more output, which would never be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, select

from cleveragents.core.text.redaction import redact_text
from cleveragents.plans.ports.plans import OutputPiece
from cleveragents.storage.columns import is_storable, microseconds, moment
from cleveragents.storage.database import Database
from cleveragents.storage.service_tables import plan_output
from cleveragents.storage.tables import plans

__all__ = ["OUTPUT_BYTES", "SqlPlanOutput"]

OUTPUT_BYTES = 256 * 1024

_LONGEST_PIECE = 16 * 1024
_MOST_READ = 1000

_OF_PLAN = plan_output.c.plan_id == bindparam("plan_id")
_LAST = (
    select(plan_output.c.number, plan_output.c.ends_at)
    .where(_OF_PLAN)
    .order_by(plan_output.c.number.desc())
    .limit(1)
)
_FIRST_KEPT = (
    select(plan_output.c.number)
    .where(_OF_PLAN, plan_output.c.ends_at > bindparam("gone"))
    .order_by(plan_output.c.number)
    .limit(1)
)
_FORGET = delete(plan_output).where(_OF_PLAN, plan_output.c.number < bindparam("first"))


class SqlPlanOutput:
    """`PlanOutput` on a `Database`, for the objects in the table `owners`. Has no other state, so any thread
    may share it.

    `ensure` runs in the transaction of each append, and may raise to refuse the append, for example
    `StaleTurn`.
    """

    def __init__(
        self,
        database: Database,
        *,
        bound_bytes: int = OUTPUT_BYTES,
        owners: Table = plans,
        ensure: Callable[[Connection], None] | None = None,
    ) -> None:
        self._database = database
        self._ensure = ensure
        self._bound = bound_bytes
        self._hold = select(owners.c.id).where(owners.c.id == bindparam("plan_id")).with_for_update()

    def append(self, plan_id: str, pieces: Sequence[tuple[str, str]], *, now: datetime) -> None:
        # Mask before the cut: a secret must not cross the border of two pieces.
        texts = [(kind, part) for kind, text in pieces for part in _parts(_storable(redact_text(text)))]
        if texts:
            self._database.write(lambda connection: self._add(connection, plan_id, texts, now))

    def read(self, plan_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[OutputPiece]:
        if not is_storable(plan_id):
            return []
        query = (
            select(plan_output)
            .where(plan_output.c.plan_id == plan_id, plan_output.c.number > after)
            .order_by(plan_output.c.number)
            .limit(max(1, min(limit, _MOST_READ)))
        )
        with self._database.read() as connection:
            return [_piece(row) for row in connection.execute(query).mappings()]

    def last(self, plan_id: str) -> int:
        if not is_storable(plan_id):
            return 0
        with self._database.read() as connection:
            return connection.execute(_LAST, {"plan_id": plan_id}).scalar() or 0

    def _add(
        self, connection: Connection, plan_id: str, texts: Sequence[tuple[str, str]], now: datetime
    ) -> None:
        if self._ensure is not None:
            self._ensure(connection)
        if (
            connection.execute(self._hold, {"plan_id": plan_id}).first() is None
        ):  # guard: nothing outlives a plan
            return
        number, end = connection.execute(_LAST, {"plan_id": plan_id}).first() or (0, 0)
        rows: list[dict[str, Any]] = []
        for kind, text in texts:
            number += 1
            end += len(text.encode())
            row = {"plan_id": plan_id, "number": number, "kind": kind, "text": text, "ends_at": end}
            rows.append(row | {"written_at": microseconds(now)})
        gone = end - self._bound
        # The last piece stays whatever its size, because the next one is numbered after it.
        kept = [row for row in rows if row["ends_at"] > gone]
        connection.execute(plan_output.insert(), kept)
        if gone > 0:  # guard: endless output does not fill the disk
            first = connection.execute(_FIRST_KEPT, {"plan_id": plan_id, "gone": gone}).scalar_one()
            connection.execute(_FORGET, {"plan_id": plan_id, "first": first})


def _storable(text: str) -> str:
    """Return the text as every database can store it: without NUL and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _parts(text: str) -> Iterator[str]:
    for start in range(0, len(text), _LONGEST_PIECE):
        yield text[start : start + _LONGEST_PIECE]


def _piece(row: Any) -> OutputPiece:
    return OutputPiece(
        plan_id=row["plan_id"],
        number=row["number"],
        kind=row["kind"],
        text=row["text"],
        written_at=moment(row["written_at"]),
    )
