"""Answers to requests with an idempotency key, on a database.

Whoever lost the claim to a request makes nothing more for it: asked in the transaction that makes it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.sql.dml import ReturningInsert

from cleveragents.core.errors import KeyReused, RequestUnderWay
from cleveragents.storage.columns import microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.idempotency import IdempotencyClaim, StoredResponse
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.service_tables import idempotency_keys

__all__ = ["SqlIdempotencyStore", "claimed", "keep_made", "kept_key"]


KEPT = timedelta(hours=24)
"""How long an answer is given again."""

PATIENCE = timedelta(minutes=5)
"""Who has not answered for so long is taken for dead."""


def _keeping(dialect: str) -> ReturningInsert[tuple[str]]:
    """An insert; of two that come at once with one key, the second finds that it kept nothing."""
    return insert_into(idempotency_keys, dialect).on_conflict_do_nothing().returning(idempotency_keys.c.key)


_ROWS = idempotency_keys.c


class SqlIdempotencyStore:
    """`IdempotencyStore` on a `Database`. Stateless but for the database, so any thread may share it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self, user_id: str, key: str, request: str, *, now: datetime
    ) -> IdempotencyClaim | StoredResponse:
        claim = IdempotencyClaim(user_id, key, microseconds(now))
        kept = kept_key(key)
        row = {"user_id": user_id, "key": kept, "request": request, "created_at": claim.stamp}

        def unit(connection: Connection) -> IdempotencyClaim | StoredResponse:
            old = _ROWS.created_at < microseconds(now - KEPT)
            connection.execute(delete(idempotency_keys).where(_ROWS.user_id == user_id, old))
            if connection.execute(_keeping(connection.dialect.name), row).first() is not None:
                return claim
            held = select(idempotency_keys).where(_ROWS.user_id == user_id, _ROWS.key == kept)
            found = connection.execute(held.with_for_update()).first()
            if found is None:
                raise RequestUnderWay(key)  # it was released at this moment
            return _judged(connection, found, request, claim, now)

        return self._database.write(unit)

    def finish(self, claim: IdempotencyClaim, answer: StoredResponse) -> None:
        # Readable, so that whoever looks for a secret in the database would find it; any bytes come back.
        body = answer.body.decode("utf-8", "surrogateescape")
        text = json.dumps([answer.status, answer.media_type, body, answer.location])
        self._database.write(
            lambda connection: connection.execute(
                update(idempotency_keys).where(*claimed(claim)).values(answer=text)
            )
        )

    def release(self, claim: IdempotencyClaim) -> None:
        # guard: what was made is found again, whatever was answered
        unmade = (*claimed(claim), _ROWS.made.is_(None))
        self._database.write(lambda connection: connection.execute(delete(idempotency_keys).where(*unmade)))


def _judged(
    connection: Connection, found: Any, request: str, claim: IdempotencyClaim, now: datetime
) -> IdempotencyClaim | StoredResponse:
    if found.request != request:  # guard: one key, one request
        raise KeyReused(claim.key)
    if found.answer is not None:
        status, media_type, body, location = json.loads(found.answer)
        return StoredResponse(status, media_type, body.encode("utf-8", "surrogateescape"), location)
    # Who made something can make nothing more: whether they live or not, the next finds the same.
    waits = found.made is None and found.created_at > microseconds(now - PATIENCE)
    if waits:  # guard: no two work on it at once
        raise RequestUnderWay(claim.key)
    # guard: two claims never look the same, whatever the clock says
    stamp = max(claim.stamp, found.created_at + 1)
    same = (_ROWS.user_id == claim.user_id, _ROWS.key == found.key)
    connection.execute(update(idempotency_keys).where(*same).values(created_at=stamp))
    return replace(claim, stamp=stamp, made=found.made)


def keep_made(connection: Connection, claim: IdempotencyClaim | None, made: str | None) -> None:
    """Keeps the id of what the transaction makes with the key of the request that it is made for, or None
    when it takes that back; nothing where no claim is given. Until the transaction is over, nobody takes the
    claim over. `RequestUnderWay` if somebody did."""
    if claim is None:
        return
    kept = connection.execute(update(idempotency_keys).where(*claimed(claim)).values(made=made))
    if kept.rowcount == 0:  # guard: what is made by who comes too late is there twice
        raise RequestUnderWay(claim.key)


def claimed(claim: IdempotencyClaim) -> tuple[Any, ...]:
    """The key's row, as long as the claim holds."""
    # The stamp tells whether somebody took it over; an answer that is kept stays.
    return (
        _ROWS.user_id == claim.user_id,
        _ROWS.key == kept_key(claim.key),
        _ROWS.created_at == claim.stamp,
        _ROWS.answer.is_(None),
    )


def kept_key(key: str) -> str:
    """What is kept of a key."""
    # Clients choose it, and may choose what is nobody's business.
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
