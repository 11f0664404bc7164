"""Stored responses to requests with an idempotency key, so that a repeated request is not executed twice.

A server may be killed after it has acted and before it responds. The transaction that creates an object for a
request therefore also stores the object's id with the key, and fails if the claim is no longer valid. A
server that takes over the claim finds the object; a server that lost the claim can no longer create one.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["IdempotencyClaim", "StoredResponse"]


class StoredResponse(Struct, frozen=True):
    """A response as it was sent."""

    status: int
    media_type: str
    body: bytes
    location: str | None = None


class IdempotencyClaim(Struct, frozen=True):
    """The exclusive right to work on a request, until another server takes it over.

    `made` is the id of the object that an earlier owner of the claim created: reuse it instead of creating
    another.
    """

    user_id: str
    key: str
    stamp: int
    made: str | None = None
