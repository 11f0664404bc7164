"""Where actions come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from cleveragents.core.actions.model import Action

__all__ = ["ActionListing", "ActionOrigin", "ActionStore", "StoredAction"]


class ActionOrigin(str, Enum):
    """Who brought an action. In this order: of two with one name the first counts."""

    BUILTIN = "builtin"
    USER = "user"
    REPOSITORY = "repository"


@dataclass(frozen=True, slots=True)
class StoredAction:
    """An action as the user gave it: YAML."""

    name: str
    document: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ActionListing:
    """An action that was found. `problem` says why it cannot be used; `trusted`, whether it may run."""

    name: str
    origin: ActionOrigin
    source: str
    trusted: bool
    action: Action | None = None
    problem: str | None = None


class ActionStore(Protocol):
    """The user's own actions, by name. Every method is one atomic step, from any thread and process."""

    def put(self, name: str, document: str, *, replace: bool = False) -> None:
        """Keeps it. `ActionExists` unless `replace`."""
        ...

    def get(self, name: str) -> StoredAction | None: ...

    def list(self) -> Sequence[StoredAction]:
        """All of them, by name."""
        ...

    def delete(self, name: str) -> bool:
        """Whether there was one."""
        ...
