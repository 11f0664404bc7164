"""Changesets of a running plan: the store, the current changeset, and the sum of all changes.

Several graph nodes share one context, each with its own changeset. "The latest changeset" is therefore
ambiguous, even under a lock: between two statements of one node, another node may start a newer changeset. So
a changeset is named by its handle. Without a handle, the *current* changeset of this task or thread is used
or, if none is current, the only active changeset; otherwise the call raises. The current changeset is kept in
`contextvars`: a child task inherits it from its parent, and a new thread has none.

The changeset is chosen under the lock, and the store is called outside the lock, so a changeset may be closed
in between. The store itself refuses a closed changeset, so no change is recorded in the wrong one.

`ChangeFold` adds up the recorded changes of a plan while a run records more, and reads each change once. A
closed changeset never changes, and later changesets follow it, so each closed changeset is read once. An open
changeset is read again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Protocol

from cleveragents.core.change import ChangeEntry, Changeset, Difference, RecordedChange, split_renames
from cleveragents.core.errors import AmbiguousChangeset, ChangesetClosed, ForeignChangeset, NoActiveChangeset

__all__ = ["ChangeFold", "ChangesetStore", "PlanExecutionContext"]


_Stacks = Mapping["weakref.ref[PlanExecutionContext]", tuple[str, ...]]
# One variable for all contexts, because interpreters never free a ContextVar. Its keys are weak, so that a
# long-lived thread does not remember every plan it ran.
_STACKS: ContextVar[_Stacks] = ContextVar("cleveragents_changesets", default=MappingProxyType({}))


class PlanExecutionContext:
    """Starts, fills and closes the changesets of one plan.

    Thread safety:
        Owner: the run of the plan; its nodes, tasks and threads share it.
        Lock: `_changeset_lock` guards `_active_changeset_ids`, for arithmetic only, never across the store.
        Guarantee: a change is recorded exactly once, in the changeset it names or, without a handle, in the
            one current in this task or thread, or in the only active one; or the call raises and nothing is
            recorded. A changeset that another task closed stays current in this one, and recording raises
            `ChangesetClosed`; the change never goes to another changeset instead.
    Cancel safety: an interrupted `start_changeset` may leave an open, empty changeset in the store; an
        interrupted `record_change` has recorded the entry or not, and a retry under the same key is safe.
    """

    def __init__(self, plan_id: str, changeset_store: ChangesetStore) -> None:
        self._plan_id = plan_id
        self._changeset_store = changeset_store
        self._changeset_lock = threading.Lock()
        self._active_changeset_ids: list[str] = []
        self._me = weakref.ref(self)

    @property
    def plan_id(self) -> str:
        return self._plan_id

    @property
    def active_changesets(self) -> tuple[str, ...]:
        """The changesets that this context started and that are not closed, oldest first."""
        with self._changeset_lock:
            return tuple(self._active_changeset_ids)

    @property
    def current_changeset(self) -> str | None:
        """The changeset that is current in this task or thread; None if no changeset is current."""
        stack = self._stack()
        return stack[-1] if stack else None

    def start_changeset(self) -> str:
        """Start a changeset, make it current in this task or thread, and return its handle."""
        changeset_id = self._start()
        self._set_stack((*self._stack(), changeset_id))
        return changeset_id

    def record_change(
        self, entry: ChangeEntry, changeset: str | None = None, *, key: str | None = None
    ) -> RecordedChange:
        """Record the entry; it is durable on return. Retries with the same `key` record it once.

        Raises `NoActiveChangeset` or `AmbiguousChangeset` if no changeset can be chosen; `ForeignChangeset`,
        `UnknownChangeset` or `ChangesetClosed` if the handle or the current changeset cannot be used.
        """
        changeset_id = self._address(changeset)
        with self._forgetting_if_sealed(changeset_id):
            return self._changeset_store.record(changeset_id, entry, key=key)

    def record_changes(
        self, entries: Sequence[ChangeEntry], changeset: str | None = None, *, key: str | None = None
    ) -> Sequence[RecordedChange]:
        """Record the changes of one command, in order, all or none; otherwise like `record_change`."""
        changeset_id = self._address(changeset)
        with self._forgetting_if_sealed(changeset_id):
            return self._changeset_store.record_all(changeset_id, entries, key=key)

    def close_changeset(self, changeset: str | None = None) -> Changeset:
        """Close the changeset, chosen as in `record_change`; the enclosing changeset becomes current again.

        Closing twice is harmless. Raises the errors of `record_change` if no changeset can be chosen.
        """
        changeset_id = self._address(changeset)
        closed = self._changeset_store.close(changeset_id)
        self._forget(changeset_id)
        stack = self._stack()
        if changeset_id in stack:
            self._set_stack(tuple(one for one in stack if one != changeset_id))
        return closed

    @contextmanager
    def changeset(self) -> Iterator[str]:
        """Open a changeset that is current in the block and closed at its end, however the block ends."""
        changeset_id = self._start()
        with self.recording_into(changeset_id):
            try:
                yield changeset_id
            finally:
                self.close_changeset(changeset_id)

    @contextmanager
    def recording_into(self, changeset: str) -> Iterator[None]:
        """Make a changeset current for the block. Use it to continue a changeset in another thread."""
        changeset_id = self._address(changeset)
        outer = self._stack()
        self._set_stack((*outer, changeset_id))
        try:
            yield
        finally:
            # Exactly the previous stack, even if a changeset was closed meanwhile: then recording raises.
            self._set_stack(outer)

    @contextmanager
    def _forgetting_if_sealed(self, changeset_id: str) -> Iterator[None]:
        try:
            yield
        except ChangesetClosed:
            # Another task closed it: it no longer counts as the only active one.
            self._forget(changeset_id)
            raise

    def _start(self) -> str:
        changeset_id = self._changeset_store.start(self._plan_id)
        with self._changeset_lock:
            self._active_changeset_ids.append(changeset_id)
        return changeset_id

    def _address(self, changeset: str | None) -> str:
        """Return the id of the chosen changeset."""
        wanted = changeset if changeset is not None else self.current_changeset
        with self._changeset_lock:
            active = self._active_changeset_ids
            if wanted is None:
                return self._only(active)
            started_here = wanted in active
        if changeset is not None and not started_here:
            # A resumed plan has handles that it did not start. Their owner never changes, so no lock is
            # needed.
            owner = self._changeset_store.get(changeset).plan_id
            if owner != self._plan_id:  # guard: changes stay with their plan
                raise ForeignChangeset(self._plan_id, changeset_id=changeset)
        return wanted

    def _only(self, active: list[str]) -> str:
        match active:
            case [only]:
                return only
            case []:
                raise NoActiveChangeset(self._plan_id)
            case several:
                raise AmbiguousChangeset(self._plan_id, active=tuple(several))

    def _forget(self, changeset_id: str) -> None:
        with self._changeset_lock:
            if (
                changeset_id in self._active_changeset_ids
            ):  # guard: two tasks may close one changeset at the same time
                self._active_changeset_ids.remove(changeset_id)

    def _stack(self) -> tuple[str, ...]:
        return _STACKS.get().get(self._me, ())

    def _set_stack(self, stack: tuple[str, ...]) -> None:
        others = {me: ids for me, ids in _STACKS.get().items() if me() is not None and me is not self._me}
        _STACKS.set(MappingProxyType({**others, self._me: stack} if stack else others))


class ChangeFold:
    """The sum of one plan's changes. Not thread-safe: used by the run that made it."""

    def __init__(self) -> None:
        self._steps: dict[str, Difference] = {}
        self._last: str | None = None
        # The number of folded entries of each open changeset.
        self._open: dict[str, int] = {}

    def caught_up(self, changesets: ChangesetStore, plan_id: str) -> dict[str, Difference]:
        """Return the first and last state of every changed path; paths that returned to their first state are
        left out. Reads only the changes that were recorded since the last call.
        """
        still_open = [changesets.get(changeset_id) for changeset_id in self._open]
        if any(self._grew_behind(changeset) for changeset in still_open):  # guard: changes are ordered
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
        """Return whether the changeset has new changes that come before changes that are already folded."""
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


class ChangesetStore(Protocol):
    """Changesets and their entries. Every method may be called from any thread.

    A started changeset and a recorded entry are durable: they survive a kill -9 after the call returned. An
    entry is recorded in the changeset that the call names, or the call raises.
    """

    def start(self, plan_id: str) -> str:
        """Start a changeset of the plan and return its id."""
        ...

    def record(self, changeset_id: str, entry: ChangeEntry, *, key: str | None = None) -> RecordedChange:
        """Append the entry with the next sequence number (from 1, without gaps).

        A repeated `key` returns the first record and appends nothing; with another entry it raises
        `DuplicateKey`. Raises `ChangesetClosed`, `UnknownChangeset`.
        """
        ...

    def record_all(
        self, changeset_id: str, entries: Sequence[ChangeEntry], *, key: str | None = None
    ) -> Sequence[RecordedChange]:
        """Append the entries in order, all or none: the changes of one command.

        With a `key`, entry n is stored under `key#n`, so that a repeated call records nothing twice. Raises
        the errors of `record`.
        """
        ...

    def close(self, changeset_id: str) -> Changeset:
        """Close the changeset; closing twice is harmless. Raises `UnknownChangeset`."""
        ...

    def get(self, changeset_id: str) -> Changeset:
        """Return the changeset. Raises `UnknownChangeset`."""
        ...

    def entries(self, changeset_id: str) -> Sequence[RecordedChange]:
        """Return the recorded entries, in order. Raises `UnknownChangeset`."""
        ...

    def of_plan(self, plan_id: str, *, after: str | None = None) -> Sequence[Changeset]:
        """Return the changesets of a plan, oldest first: all of them, or those started after the changeset
        `after`.

        With `after`, the cost does not depend on the number of earlier changesets. Raises `UnknownChangeset`.
        """
        ...
