"""Whoever lost the claim to a request makes nothing more for it: asked in the transaction that makes it."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, update

from cleveragents.core.errors import RequestUnderWay
from cleveragents.storage.answers import Claim
from cleveragents.storage.service_tables import idempotency_keys

__all__ = ["claimed", "keep_made", "kept_key"]

_ROWS = idempotency_keys.c


def keep_made(connection: Connection, claim: Claim | None, made: str | None) -> None:
    """Keeps the id of what the transaction makes with the key of the request that it is made for, or None
    when it takes that back; nothing where no claim is given. Until the transaction is over, nobody takes the
    claim over. `RequestUnderWay` if somebody did."""
    if claim is None:
        return
    kept = connection.execute(update(idempotency_keys).where(*claimed(claim)).values(made=made))
    if kept.rowcount == 0:  # guard: what is made by who comes too late is there twice
        raise RequestUnderWay(claim.key)


def claimed(claim: Claim) -> tuple[Any, ...]:
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
