"""Plans and their changesets."""

from __future__ import annotations

from dataclasses import dataclass

from cleveragents.core.errors.families import InvalidRequest
from cleveragents.core.errors.remedy import Remedy

__all__ = [
    "AmbiguousChangeset",
    "ChangesetClosed",
    "DuplicateKey",
    "ForeignChangeset",
    "NoActiveChangeset",
    "PlanError",
    "UnknownChangeset",
]


@dataclass(eq=False)
class PlanError(InvalidRequest):
    """The plan cannot do what was asked in its present situation."""

    message = "plan {plan_id}: {reason}"
    plan_id: str
    reason: str
    remedies: tuple[Remedy, ...] = ()


@dataclass(eq=False)
class NoActiveChangeset(PlanError):
    """A change was to be recorded, and no changeset is open."""

    reason: str = "no changeset is active; call start_changeset() first"


@dataclass(eq=False)
class AmbiguousChangeset(PlanError):
    """Several changesets are open and none is current here: filing the change would be a guess."""

    reason: str = "several changesets are active and none is current here"
    active: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"plan {self.plan_id}: {self.reason} ({', '.join(self.active)}); "
            "pass changeset=… to say which one is meant"
        )


@dataclass(eq=False)
class ForeignChangeset(PlanError):
    """A plan records only into changesets of its own."""

    message = "plan {plan_id}: {reason} ({changeset_id}); pass a handle of this plan"
    reason: str = "the changeset belongs to another plan"
    changeset_id: str = ""


@dataclass(eq=False)
class ChangesetClosed(InvalidRequest):
    """A closed changeset is immutable."""

    message = "changeset {changeset_id} is closed; start a new one to record more changes"
    changeset_id: str


@dataclass(eq=False)
class UnknownChangeset(InvalidRequest):
    """No changeset of that id exists in this store."""

    message = "there is no changeset {changeset_id!r}"
    changeset_id: str


@dataclass(eq=False)
class DuplicateKey(InvalidRequest):
    """An idempotency key came back with different content: a retry must repeat what it retries."""

    message = "key {key!r} was used before for something else; use a fresh key"
    key: str
