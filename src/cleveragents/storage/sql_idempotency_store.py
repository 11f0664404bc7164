"""Responses to requests with an idempotency key, in a database.

A server that lost the claim to a request can create nothing more for it: this is checked in the transaction
that creates the object.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Connection, delete, select, update
from sqlalchemy.sql.dml import ReturningInsert

from cleveragents.core.errors import KeyReused, RequestUnderWay
from cleveragents.storage.columns import microseconds
from cleveragents.storage.database import Database
from cleveragents.storage.idempotency import IdempotencyClaim, StoredResponse
from cleveragents.storage.inserts import insert_into
from cleveragents.storage.service_tables import idempotency_keys

__all__ = ["SqlIdempotencyStore", "claim_in", "claimed", "keep_made", "kept_key"]


KEPT = timedelta(hours=24)
"""How long a response is repeated."""

PATIENCE = timedelta(minutes=5)
"""A server that has not responded for this long counts as dead."""


def _keeping(dialect: str) -> ReturningInsert[tuple[str]]:
    """Return an insert that does nothing if the key already exists."""
    return insert_into(idempotency_keys, dialect).on_conflict_do_nothing().returning(idempotency_keys.c.key)


_ROWS = idempotency_keys.c


class SqlIdempotencyStore:
    """Responses by user and key. Every method is one atomic step, from any thread and process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(
        self, user_id: str, key: str, request: str, *, now: datetime
    ) -> IdempotencyClaim | StoredResponse:
        """Return the stored response, or a claim to work on the request. `request` distinguishes requests.

        Raises `KeyReused` if the key was used for another request, and `RequestUnderWay` while another server
        works on the request. A server that has not responded for a while counts as dead, and the next caller
        gets the claim. If an object was already created for the request, the next caller gets the claim
        immediately, and the claim names the object.
        """
        claim = IdempotencyClaim(user_id, key, microseconds(now))

        def unit(connection: Connection) -> IdempotencyClaim | StoredResponse:
            old = _ROWS.created_at < microseconds(now - KEPT)
            connection.execute(delete(idempotency_keys).where(_ROWS.user_id == user_id, old))
            return claim_in(connection, claim, request, waits_until=microseconds(now - PATIENCE))

        return self._database.write(unit)

    def finish(self, claim: IdempotencyClaim, answer: StoredResponse) -> None:
        """Store the response, unless the claim was taken over."""
        # Stored as readable text, so that a search for secrets in the database finds them; any bytes
        # round-trip.
        body = answer.body.decode("utf-8", "surrogateescape")
        text = json.dumps([answer.status, answer.media_type, body, answer.location])
        self._database.write(
            lambda connection: connection.execute(
                update(idempotency_keys).where(*claimed(claim)).values(answer=text)
            )
        )

    def release(self, claim: IdempotencyClaim) -> None:
        """Give up the claim without a response: the next caller gets it, with the object created so far."""
        # guard: the created object is found again, whatever the response was
        unmade = (*claimed(claim), _ROWS.made.is_(None))
        self._database.write(lambda connection: connection.execute(delete(idempotency_keys).where(*unmade)))


def claim_in(
    connection: Connection, claim: IdempotencyClaim, request: str, *, waits_until: int | None
) -> IdempotencyClaim | StoredResponse:
    """Return the stored response, or the claim. The claim is taken over if its owner claimed it before
    `waits_until`. With None, the claim is taken over at once; only a caller that has locked out all other
    owners may pass None.

    Raises `KeyReused`, `RequestUnderWay`.
    """
    kept = kept_key(claim.key)
    row = {"user_id": claim.user_id, "key": kept, "request": request, "created_at": claim.stamp}
    if connection.execute(_keeping(connection.dialect.name), row).first() is not None:
        return claim
    held = select(idempotency_keys).where(_ROWS.user_id == claim.user_id, _ROWS.key == kept)
    found = connection.execute(held.with_for_update()).first()
    if found is None:
        raise RequestUnderWay(claim.key)  # the claim was released at this moment
    return _judged(connection, found, request, claim, waits_until)


def _judged(
    connection: Connection, found: Any, request: str, claim: IdempotencyClaim, waits_until: int | None
) -> IdempotencyClaim | StoredResponse:
    if found.request != request:  # guard: one key, one request
        raise KeyReused(claim.key)
    if found.answer is not None:
        status, media_type, body, location = json.loads(found.answer)
        return StoredResponse(status, media_type, body.encode("utf-8", "surrogateescape"), location)
    # A claim with an object can create nothing more: alive or not, the next owner finds the same object.
    waits = found.made is None and waits_until is not None and found.created_at > waits_until
    if waits:  # guard: two servers never work on it at the same time
        raise RequestUnderWay(claim.key)
    # guard: two claims never look the same, whatever the clock says
    stamp = max(claim.stamp, found.created_at + 1)
    same = (_ROWS.user_id == claim.user_id, _ROWS.key == found.key)
    connection.execute(update(idempotency_keys).where(*same).values(created_at=stamp))
    return replace(claim, stamp=stamp, made=found.made)


def keep_made(connection: Connection, claim: IdempotencyClaim | None, made: str | None) -> None:
    """Store the id of the object that this transaction creates with the key of its request.

    `made` is None if the transaction removes the object. Does nothing without a claim. Until the transaction
    ends, no other server can take over the claim. Raises `RequestUnderWay` if another server has taken it
    over before.
    """
    if claim is None:
        return
    kept = connection.execute(update(idempotency_keys).where(*claimed(claim)).values(made=made))
    if kept.rowcount == 0:  # guard: an object created by a late server would exist twice
        raise RequestUnderWay(claim.key)


def claimed(claim: IdempotencyClaim) -> tuple[Any, ...]:
    """Return a condition for the row of the key, true while the claim is valid."""
    # The timestamp shows whether the claim was taken over; a stored response stays.
    return (
        _ROWS.user_id == claim.user_id,
        _ROWS.key == kept_key(claim.key),
        _ROWS.created_at == claim.stamp,
        _ROWS.answer.is_(None),
    )


def kept_key(key: str) -> str:
    """Return the stored form of a key."""
    # Clients choose the key, and it may contain private data.
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
