"""What a merge that is decided tells, and that it is made once: the same for files that are moved and for a
branch that is pushed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cleveragents.apply.journal import Journal
from cleveragents.apply.merge import Merge
from cleveragents.apply.ports import FileConflict
from cleveragents.core.errors import ApplyConflict, ApplyRefused
from cleveragents.core.faults import FaultPoints
from cleveragents.core.file_state import Difference

__all__ = ["PreparedMerge", "Wish"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be brought in: base → theirs. `kind` is `apply` or `undo`; `undoes` is the journal of the
    apply that is undone."""

    kind: str
    plan_id: str
    base: str
    theirs: str
    undoes: Journal | None = None


class PreparedMerge:
    """The part of `Preparation` that looks. Not thread-safe: use it in the block that prepared it, once."""

    def __init__(self, wish: Wish, merge: Merge, faults: FaultPoints) -> None:
        self._wish = wish
        self._merge = merge
        self._faults = faults
        self._usable = True

    @property
    def merged(self) -> str:
        return self._merge.merged

    @property
    def conflicts(self) -> Sequence[FileConflict]:
        return self._merge.conflicts

    @property
    def changes(self) -> Mapping[str, Difference]:
        return MappingProxyType(dict(self._merge.changes))

    def close(self) -> None:
        """The resource is let go, so nothing may be done any more."""
        self._usable = False

    def _use(self) -> None:
        """Whoever goes on from here makes it. `ApplyRefused`, `ApplyConflict`."""
        if not self._usable:  # guard: nothing is done without the resource's lock, or twice
            raise ApplyRefused(self._wish.plan_id, "its preparation is over; prepare it again")
        if self._merge.conflicts:
            paths = tuple(conflict.path for conflict in self._merge.conflicts)
            raise ApplyConflict(self._wish.plan_id, paths, "\n".join(map(str, self._merge.conflicts)))
        self._usable = False

    def _reach(self, step: str) -> None:
        self._faults.reach(f"{self._wish.kind}.{step}")
