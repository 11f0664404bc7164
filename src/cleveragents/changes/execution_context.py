"""The changesets of one running plan: which one a change is filed under, decided without guessing.

Several graph nodes share one context, each in a changeset of its own. "The latest one" is therefore no
address, however well it is locked: between two statements of one node the latest becomes another node's.
So the handle is the identity. Where none is given, the changeset *current* in this task or thread is meant,
or, if nothing is current here, the only active one; otherwise the call raises. What is current travels in
`contextvars`: a child task starts with its parent's, a plain thread with nothing.

The decision is made under the lock and the store is called outside it, so a changeset may be sealed in
between. That misfiles nothing: the decision names a changeset, and the store itself refuses a sealed one.

What the recorded changes of a plan come to, kept up while a run goes on recording: each is read once.

A sealed changeset never changes and later ones only come after it, so what was folded stays folded. One that
was still open is looked at again. Nothing is taken on trust: whoever recorded what is there, it is read.

Where changesets are kept.
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
# One variable for all contexts, because interpreters never let go of a ContextVar; its keys are weak, so
# that a thread that lives long does not remember every plan it ever ran.
_STACKS: ContextVar[_Stacks] = ContextVar("cleveragents_changesets", default=MappingProxyType({}))


class PlanExecutionContext:
    """Starts, fills and closes the changesets of one plan.

    Thread safety:
        Owner: the run of the plan; its nodes, tasks and threads share it.
        Lock: `_changeset_lock` guards `_active_changeset_ids`, for arithmetic only, never across the store.
        Guarantee: a change is recorded exactly once, in the changeset it names or, without a handle, in the
            one current in this task or thread, or in the only active one; or the call raises and nothing is
            recorded. A changeset that somebody else closed stays current here, and recording raises
            `ChangesetClosed`: it never goes to another one instead.
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
        """Those started here and not yet closed, oldest first."""
        with self._changeset_lock:
            return tuple(self._active_changeset_ids)

    @property
    def current_changeset(self) -> str | None:
        """Where a change recorded here without a handle goes, unless nothing is current here."""
        stack = self._stack()
        return stack[-1] if stack else None

    def start_changeset(self) -> str:
        """A new changeset: kept, active, and current in this task or thread. Returns its handle."""
        changeset_id = self._start()
        self._set_stack((*self._stack(), changeset_id))
        return changeset_id

    def record_change(
        self, entry: ChangeEntry, changeset: str | None = None, *, key: str | None = None
    ) -> RecordedChange:
        """Records the entry; when it returns, the entry is kept. Retries with the same `key` record once.

        `NoActiveChangeset` and `AmbiguousChangeset` where no changeset is meant; `ForeignChangeset`,
        `UnknownChangeset` and `ChangesetClosed` for a handle (or a current one) that cannot be used.
        """
        changeset_id = self._address(changeset)
        with self._forgetting_if_sealed(changeset_id):
            return self._changeset_store.record(changeset_id, entry, key=key)

    def record_changes(
        self, entries: Sequence[ChangeEntry], changeset: str | None = None, *, key: str | None = None
    ) -> Sequence[RecordedChange]:
        """Records what one command changed, in order, all or none, in one step; else as `record_change`."""
        changeset_id = self._address(changeset)
        with self._forgetting_if_sealed(changeset_id):
            return self._changeset_store.record_all(changeset_id, entries, key=key)

    def close_changeset(self, changeset: str | None = None) -> Changeset:
        """Seals the changeset, found as in `record_change`; here the one around it is current again.

        Closing twice is harmless. Raises what `record_change` raises where no changeset is meant.
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
        """A changeset that is current in the block and closed at its end, however the block ends."""
        changeset_id = self._start()
        with self.recording_into(changeset_id):
            try:
                yield changeset_id
            finally:
                self.close_changeset(changeset_id)

    @contextmanager
    def recording_into(self, changeset: str) -> Iterator[None]:
        """Makes a changeset current for the block: the way to carry a handle into a thread."""
        changeset_id = self._address(changeset)
        outer = self._stack()
        self._set_stack((*outer, changeset_id))
        try:
            yield
        finally:
            # Exactly what was current before, even if it was closed meanwhile: then recording raises.
            self._set_stack(outer)

    @contextmanager
    def _forgetting_if_sealed(self, changeset_id: str) -> Iterator[None]:
        try:
            yield
        except ChangesetClosed:
            # Somebody else sealed it: from now on it is nobody's "only active one".
            self._forget(changeset_id)
            raise

    def _start(self) -> str:
        changeset_id = self._changeset_store.start(self._plan_id)
        with self._changeset_lock:
            self._active_changeset_ids.append(changeset_id)
        return changeset_id

    def _address(self, changeset: str | None) -> str:
        """The id of the changeset that is meant."""
        wanted = changeset if changeset is not None else self.current_changeset
        with self._changeset_lock:
            active = self._active_changeset_ids
            if wanted is None:
                return self._only(active)
            started_here = wanted in active
        if changeset is not None and not started_here:
            # A plan that resumes has handles it did not start; whose they are never changes, so no lock.
            owner = self._changeset_store.get(changeset).plan_id
            if owner != self._plan_id:  # guard: a plan's changes stay its own
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
            if changeset_id in self._active_changeset_ids:  # guard: two may close one changeset at once
                self._active_changeset_ids.remove(changeset_id)

    def _stack(self) -> tuple[str, ...]:
        return _STACKS.get().get(self._me, ())

    def _set_stack(self, stack: tuple[str, ...]) -> None:
        others = {me: ids for me, ids in _STACKS.get().items() if me() is not None and me is not self._me}
        _STACKS.set(MappingProxyType({**others, self._me: stack} if stack else others))


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


class ChangesetStore(Protocol):
    """Changesets and their entries. Every method may be called from any thread.

    Started means kept: when `start` returns, the changeset survives a kill -9. Recorded means kept, too.
    The handle is the identity: an entry lands in the changeset it names, or the call raises.
    """

    def start(self, plan_id: str) -> str:
        """A new open changeset of the plan; returns its id."""
        ...

    def record(self, changeset_id: str, entry: ChangeEntry, *, key: str | None = None) -> RecordedChange:
        """Appends the entry with the next sequence number (gapless, from 1).

        A repeated `key` returns what it recorded the first time and appends nothing; with another
        entry it raises `DuplicateKey`. `ChangesetClosed`, `UnknownChangeset`.
        """
        ...

    def record_all(
        self, changeset_id: str, entries: Sequence[ChangeEntry], *, key: str | None = None
    ) -> Sequence[RecordedChange]:
        """Appends the entries in order, all of them or none, in one step: what one command changed.

        With a `key`, entry n is kept under `key#n`, so that a repeated call records nothing twice.
        Raises what `record` raises.
        """
        ...

    def close(self, changeset_id: str) -> Changeset:
        """Seals the changeset; closing twice is harmless. `UnknownChangeset`."""
        ...

    def get(self, changeset_id: str) -> Changeset:
        """The changeset as it stands. `UnknownChangeset`."""
        ...

    def entries(self, changeset_id: str) -> Sequence[RecordedChange]:
        """What was recorded, in order. `UnknownChangeset`."""
        ...

    def of_plan(self, plan_id: str, *, after: str | None = None) -> Sequence[Changeset]:
        """All changesets of a plan, oldest first, or those begun after that one; empty if there are none.

        What the latter costs does not depend on how many were begun before. `UnknownChangeset`.
        """
        ...
