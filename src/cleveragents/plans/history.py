"""What a plan has done so far, read from its records: the states its changes led to, call by call.

The records are the truth and the sandbox follows them: after an interruption it is brought back to what they
say. Nothing is ever taken out of them; a rollback is one more entry that leads back.

A plan's result: what its recorded changes, less what the reviewer left out, come to.

How much of its time a tree of plans has spent.

What counts is the time in which some call of some plan of the tree ran: plans that work at once spend it
together, and while all of them wait, for a person or for a place, none is spent. A call that is under way
counts until now, or whoever begins beside it would take the time that it is taking; if its worker is silent,
not much longer than to its last sign of life.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cleveragents.changes.execution_context import ChangeFold, ChangesetStore
from cleveragents.changes.model.review import Review, ReviewKind, accepted_states
from cleveragents.core.change import Changeset, Difference, FileState, RecordedChange, differences_of
from cleveragents.core.clock import Clock
from cleveragents.core.errors import NeedsHuman, PlanError, Remedy, SandboxRefused, UnknownCheckpoint
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.correction import taken_back_of
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.ports.plans import CallTimes
from cleveragents.plans.store.sql_plan_records import SqlCallStore, SqlReviewStore
from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = ["REREAD", "PlanHistory", "PlanResult", "bring_to", "named", "seconds_of_tree"]


REREAD = "reread"
"""The tool of the calls that took in what a person had edited by hand."""
_NAMED = 5

_SILENCE = timedelta(seconds=15)
"""As long as a worker may be silent before its peers take it for dead."""
_Span = tuple[datetime, datetime]


class PlanHistory:
    """Reads a plan's records. Stateless but for its stores, so any thread may share it."""

    def __init__(self, changesets: ChangesetStore, calls: SqlCallStore) -> None:
        self._changesets = changesets
        self._calls = calls

    def changes(self, plan_id: str) -> Sequence[RecordedChange]:
        """Every recorded change of the plan, in the order in which its changesets were begun."""
        return [
            change
            for changeset in self._changesets.of_plan(plan_id)
            if changeset.length
            for change in self._changesets.entries(changeset.id)
        ]

    def differences(self, plan_id: str, fold: ChangeFold | None = None) -> Mapping[str, Difference]:
        """What all of it comes to. Who asks often keeps a `fold`: then only what is new is read."""
        return (fold or ChangeFold()).caught_up(self._changesets, plan_id)

    def states(self, plan_id: str, fold: ChangeFold | None = None) -> dict[str, FileState | None]:
        """What the sandbox should hold where it differs from its base."""
        return {path: step.after for path, step in self.differences(plan_id, fold).items()}

    def unrecorded(
        self, plan_id: str, sandbox: Sandbox, fold: ChangeFold | None = None
    ) -> dict[str, Difference]:
        """Where the sandbox's files are not what the records add up to: the doing of whoever holds it."""
        recorded = self.differences(plan_id, fold)
        found = dict(sandbox.scan())
        unseen = [path for path, step in recorded.items() if step.after is not None and path not in found]
        for path in sandbox.ignored(unseen):
            # Recorded before a rule came that hides it from a scan: it is still there, or not.
            found[path] = Difference(recorded[path].before, sandbox.state_of(path))
        return _between(recorded, found)

    def ensure_taken_in(self, plan_id: str, sandbox: Sandbox) -> None:
        """`NeedsHuman` when somebody edited files of the sandbox by hand and did not say what is to become
        of that. What an interrupted call left there does not count."""
        if self.open_calls(plan_id):
            return
        edited = self.unrecorded(plan_id, sandbox)
        if edited:
            what = f"{named(edited)} changed in its sandbox, and that is not recorded"
            reread = Remedy("plan.reread", plan_id, text="Record it, as a call that can be rolled back")
            raise NeedsHuman(plan_id, what, (reread,))

    def leading_to(
        self, plan_id: str, sandbox: Sandbox, tree: str, fold: ChangeFold | None = None
    ) -> dict[str, Difference]:
        """What leads from the records' sum to a tree that the sandbox keeps."""
        return _between(self.differences(plan_id, fold), sandbox.changes_of(tree))

    def leading_back(self, plan_id: str, checkpoint: int) -> dict[str, Difference]:
        """What leads from the records' sum to what it was before the call of that number.
        `UnknownCheckpoint`."""
        later = {call.changeset_id for call in self._calls_from(plan_id, checkpoint)}
        kept = [change.entry for change in self.changes(plan_id) if change.changeset_id not in later]
        return _between(self.differences(plan_id), differences_of(kept))

    def calls(self, plan_id: str) -> Sequence[ToolCall]:
        """All calls, in order; those that a rollback took back, or that are to be made again, are reverted.

        That is found here rather than kept with each call, so that a rollback takes effect in one step; and
        one that was itself taken back has none.
        """
        calls = self._calls.of_plan(plan_id)
        rewrites = [call for call in calls if call.step is None]
        gone = taken_back_of((call.number for call in calls), rewrites)
        return [replace(call, state=CallState.REVERTED) if call.number in gone else call for call in calls]

    def open_calls(self, plan_id: str) -> Sequence[ToolCall]:
        """Those that are under way, or were when their run was interrupted."""
        return [call for call in self.calls(plan_id) if call.is_open]

    def changeset_of(self, call: ToolCall) -> Changeset | None:
        """What is filed under the call, as it stands."""
        return None if call.changeset_id is None else self._changesets.get(call.changeset_id)

    def latest(self, plan_id: str, step: str) -> ToolCall | None:
        """The last call that was made for the step and is not reverted, without a look at other steps'."""
        made = self._calls.of_step(plan_id, step)
        if not made:
            return None
        # What rewrites a plan belongs to no step.
        gone = taken_back_of((call.number for call in made), self._calls.of_step(plan_id, None))
        return next((call for call in reversed(made) if call.number not in gone), None)

    def _calls_from(self, plan_id: str, checkpoint: int) -> Sequence[ToolCall]:
        calls = self._calls.of_plan(plan_id)
        if not any(call.number == checkpoint for call in calls):
            raise UnknownCheckpoint(plan_id, str(checkpoint))
        return [call for call in calls if call.number >= checkpoint]


def named(paths: Iterable[str]) -> str:
    """The first few of them, and how many more there are."""
    first = list(paths)
    more = f" and {len(first) - _NAMED} more" if len(first) > _NAMED else ""
    return ", ".join(first[:_NAMED]) + more


def bring_to(sandbox: Sandbox, states: Mapping[str, FileState | None]) -> None:
    """Makes the sandbox differ from its base exactly so. The caller holds `sandbox.writing()`.

    Ignored files stay as they are. What cannot be recorded, and so not restored either, is put aside.
    """
    try:
        found = sandbox.scan()
    except SandboxRefused:
        if not sandbox.put_aside():
            raise
        found = sandbox.scan()
    wanted: dict[str, FileState | None] = {path: step.before for path, step in found.items()}
    wanted |= states
    sandbox.restore(
        {path: state for path, state in wanted.items() if path not in found or found[path].after != state}
    )


def _between(one: Mapping[str, Difference], other: Mapping[str, Difference]) -> dict[str, Difference]:
    """What leads from the one to the other, both of them differences from the same base."""
    steps: dict[str, Difference] = {}
    for path in sorted({*one, *other}):
        base = (other[path] if path in other else one[path]).before
        before = one[path].after if path in one else base
        after = other[path].after if path in other else base
        if before != after:
            steps[path] = Difference(before, after)
    return steps


@dataclass(frozen=True, slots=True)
class PlanResult:
    """Computes results from records; reads the sandbox's content, not its files. Stateless."""

    history: PlanHistory
    reviews: SqlReviewStore
    clock: Clock

    def states(self, plan: Plan, sandbox: Sandbox) -> dict[str, FileState | None]:
        """What the accepted changes lead to, where it differs from the base. `PlanError`."""
        return accepted_states(
            plan.id, self.history.changes(plan.id), self.reviews.of_plan(plan.id), sandbox.merge_content
        )

    def tree(self, plan: Plan, sandbox: Sandbox) -> str:
        """The name of the tree that would be applied."""
        return sandbox.tree(self.states(plan, sandbox))

    def diff(
        self, plan: Plan, sandbox: Sandbox, *, options: Sequence[str] = (), paths: Sequence[str] = ()
    ) -> bytes:
        """git's own difference between the base and that tree."""
        return sandbox.diff(self.tree(plan, sandbox), options=options, paths=paths)

    def review(self, plan: Plan, kind: ReviewKind, subject: str, *, accepted: bool) -> None:
        """Accepts or leaves out a file or a changeset. `PlanError` if the plan has no such change."""
        known = {
            subject_of
            for change in self.history.changes(plan.id)
            for subject_of in (
                (change.changeset_id,)
                if kind is ReviewKind.CHANGESET
                else (change.entry.path, change.entry.old_path)
            )
        }
        if subject not in known:
            what = "changeset" if kind is ReviewKind.CHANGESET else "file"
            diff = Remedy("plan.diff", plan.id, text="Show its changes")
            raise PlanError(plan.id, f"it changed no {what} {subject!r}", (diff,))
        self.reviews.set(Review(plan.id, kind, subject, accepted), now=self.clock.now())


def seconds_of_tree(calls: Iterable[CallTimes], now: datetime) -> float:
    """The length of all the time in which at least one of the calls ran."""
    spans = sorted(span for call in calls if (span := _span_of(call, now)) is not None)
    total = timedelta()
    reached: datetime | None = None
    for began, ended in spans:
        start = began if reached is None else max(began, reached)
        if ended > start:  # guard: what was counted already is not counted again, or taken back
            total += ended - start
            reached = ended
    return total.total_seconds()


def _span_of(call: CallTimes, now: datetime) -> _Span | None:
    if call.ended is None:
        return _span_so_far(call, now)
    if call.asked:
        return call.ended - timedelta(seconds=call.ran_seconds), call.ended
    return call.began, call.ended


def _span_so_far(call: CallTimes, now: datetime) -> _Span | None:
    run = call.run
    if run is None:  # guard: nobody works on that plan
        return None
    if call.began < run.since:  # guard: an earlier attempt was interrupted in it
        return None
    return call.began, min(now, run.seen + _SILENCE)
