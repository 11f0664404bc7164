"""What somebody asked for and cannot have, whoever asks and however."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import InvalidRequest
from cleveragents.core.errors.remedy import Remedy

__all__ = ["RequestRefused"]


@dataclass(eq=False)
class RequestRefused(InvalidRequest):
    """The request contradicts itself, or asks for what its subject does not have. `where` says in which of
    its fields, as the API calls them: `limits.usd`."""

    message = "this cannot be asked for: {problem}"
    problem: str
    where: str | None = None
    remedies: tuple[Remedy, ...] = ()
