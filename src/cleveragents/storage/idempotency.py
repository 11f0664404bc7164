"""Stored responses to requests with an idempotency key, so that a repeated request is not executed twice.

A server may be killed after it has acted and before it responds. The transaction that creates an object for a
request therefore also stores the object's id with the key, and fails if the claim is no longer valid. A
server that takes over the claim finds the object; a server that lost the claim can no longer create one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from msgspec import Struct

__all__ = ["IdempotencyClaim", "IdempotencyStore", "StoredResponse"]


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


class IdempotencyStore(Protocol):
    """Responses by user and key. Every method is one atomic step, from any thread and process."""

    def begin(
        self, user_id: str, key: str, request: str, *, now: datetime
    ) -> IdempotencyClaim | StoredResponse:
        """Return the stored response, or a claim to work on the request. `request` distinguishes requests.

        Raises `KeyReused` if the key was used for another request, and `RequestUnderWay` while another server
        works on the request. A server that has not responded for a while counts as dead, and the next caller
        gets the claim. If an object was already created for the request, the next caller gets the claim
        immediately, and the claim names the object.
        """
        ...

    def finish(self, claim: IdempotencyClaim, answer: StoredResponse) -> None:
        """Store the response, unless the claim was taken over."""
        ...

    def release(self, claim: IdempotencyClaim) -> None:
        """Give up the claim without a response: the next caller gets it, with the object created so far."""
        ...
