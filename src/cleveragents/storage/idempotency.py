"""What requests were answered, so that one that is sent again is not carried out again.

A server may be killed between what it did and its answer. So whoever makes something for a request keeps its
id with the key, in the transaction that makes it, and only while the claim is theirs: whoever takes the claim
over finds what was made, and who lost it makes nothing any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

__all__ = ["IdempotencyClaim", "IdempotencyStore", "StoredResponse"]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """An answer as it was given."""

    status: int
    media_type: str
    body: bytes
    location: str | None = None


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """Who works on a request: as long as nobody takes it over, nobody else does. `made` is the id of what
    whoever had the claim before made for it: to be found again, not to be made again."""

    user_id: str
    key: str
    stamp: int
    made: str | None = None


class IdempotencyStore(Protocol):
    """Answers by user and key. Every method is one atomic step, from any thread and process."""

    def begin(
        self, user_id: str, key: str, request: str, *, now: datetime
    ) -> IdempotencyClaim | StoredResponse:
        """What was answered, or the claim to work on it. `request` tells requests apart.

        `KeyReused` if the key came with another request; `RequestUnderWay` while somebody works on it. Who
        has not answered for a while is taken for dead, and the next to ask gets the claim; at once, if
        something was made for the request already, which the claim then names.
        """
        ...

    def finish(self, claim: IdempotencyClaim, answer: StoredResponse) -> None:
        """Keeps the answer, unless the claim was taken over."""
        ...

    def release(self, claim: IdempotencyClaim) -> None:
        """It came to no answer: the next to ask gets the claim, with what was made."""
        ...
