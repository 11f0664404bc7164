"""What the recorded changes of a plan come to, kept up while a run goes on recording: each is read once.

A sealed changeset never changes and later ones only come after it, so what was folded stays folded. One that
was still open is looked at again. Nothing is taken on trust: whoever recorded what is there, it is read.
"""

from __future__ import annotations

from cleveragents.changes.ports import ChangesetStore
from cleveragents.core.change import Changeset
from cleveragents.core.file_state import Difference, split_renames

__all__ = ["ChangeFold"]


class ChangeFold:
    """The fold of one plan's changes. Not thread-safe: the run that made it uses it."""

    def __init__(self) -> None:
        self._steps: dict[str, Difference] = {}
        self._last: str | None = None
        # How much was folded of those that were not sealed.
        self._open: dict[str, int] = {}

    def caught_up(self, changesets: ChangesetStore, plan_id: str) -> dict[str, Difference]:
        """First and last state of every path that was touched by now; one that came back to its first is
        left out. Reads only what was recorded since the last time."""
        still_open = [changesets.get(changeset_id) for changeset_id in self._open]
        if any(self._grew_behind(changeset) for changeset in still_open):  # guard: changes have an order
            self._steps.clear()
            self._open.clear()
            self._last = None
        else:
            for changeset in still_open:
                self._take(changesets, changeset)
        for changeset in changesets.of_plan(plan_id, after=self._last):
            self._take(changesets, changeset)
            self._last = changeset.id
        return {path: step for path, step in self._steps.items() if step.before != step.after}

    def _grew_behind(self, changeset: Changeset) -> bool:
        """Whether it has changes that belong before some that are folded already."""
        return changeset.id != self._last and changeset.length > self._open[changeset.id]

    def _take(self, changesets: ChangesetStore, changeset: Changeset) -> None:
        folded = self._open.pop(changeset.id, 0)
        if changeset.length > folded:
            new = changesets.entries(changeset.id)[folded:]
            for recorded in new:
                for path, before, after in split_renames(recorded.entry):
                    first = self._steps[path].before if path in self._steps else before
                    self._steps[path] = Difference(first, after)
            folded += len(new)
        if not changeset.closed:
            self._open[changeset.id] = folded
