"""The history of a plan, read from its records: file states, the result, and the time spent.

The records are authoritative: after an interruption, the sandbox is restored to match them. Records are never
removed; a rollback adds an entry that reverts earlier ones. The result of a plan is the sum of its recorded
changes, without the changes that a person left out.

A rebase moves the base of a plan: from then on its changes are those since the files of the repository that
the rebase merged. The sandbox keeps its original base, and all records start from the original base. So a
rollback of the rebase restores the earlier base.

A tree of plans spends the time in which at least one of its calls runs. Time in which several plans run
counts once, and time in which all of them wait does not count. A running call counts until now; if its worker
is silent, the call counts until shortly after the last heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cleveragents.changes.execution_context import ChangeFold, ChangesetStore
from cleveragents.changes.model.merge_conflict import (
    MERGE,
    REBASE,
    RESOLVE,
    MergeOutcome,
    Take,
    is_by_hand,
    last_rebase,
)
from cleveragents.changes.model.review import (
    HunkId,
    Review,
    ReviewKind,
    accepted_states,
    lapsed_hunks,
    present_hunks,
    rejected_hunks,
    without_hunks,
)
from cleveragents.core.change import (
    Changeset,
    Difference,
    FileState,
    RecordedChange,
    differences_of,
    entries_between,
    split_renames,
)
from cleveragents.core.errors import NeedsHuman, PlanError, Remedy, SandboxRefused, UnknownCheckpoint
from cleveragents.core.text.control_characters import shown
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.model.correction import RETRY, ROLLBACK, checkpoint_of, taken_back_of
from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.strategy import Strategy

if TYPE_CHECKING:
    from cleveragents.core.clock import Clock
    from cleveragents.plans.model.plan import Plan
    from cleveragents.plans.ports.plans import CallTimes
    from cleveragents.plans.store.sql_plan_records import SqlCallStore, SqlReviewStore
    from cleveragents.sandboxes.git_sandbox import Sandbox

__all__ = ["REREAD", "PlanHistory", "PlanResult", "ResultRead", "named", "restore_states", "seconds_of_tree"]


REREAD = "reread"
"""The tool of the calls that record edits of a person."""
_MERGES_AND_REWRITES = frozenset({MERGE, REBASE, RESOLVE, RETRY, ROLLBACK})
_NAMED = 5
_FINISHED = ((Phase.EXECUTE, PlanState.COMPLETE), (Phase.APPLY, PlanState.CONSTRAINED))

_SILENCE = timedelta(seconds=15)
"""How long a worker may be silent before other workers take it for dead."""
_Span = tuple[datetime, datetime]


class PlanHistory:
    """Reads the records of plans. Stateless, so any thread may share it."""

    def __init__(self, changesets: ChangesetStore, calls: SqlCallStore) -> None:
        self._changesets = changesets
        self._calls = calls

    def changes(self, plan_id: str, *, after: str | None = None) -> Sequence[RecordedChange]:
        """Return every recorded change of the plan, in the order in which the changesets started. With
        `after`, return only changes of changesets that started after the changeset `after`.
        """
        return [
            change
            for changeset in self._changesets.of_plan(plan_id, after=after)
            if changeset.length
            for change in self._changesets.entries(changeset.id)
        ]

    def has_changes(self, plan_id: str) -> bool:
        """Return whether the plan recorded a change, without reading the changes."""
        return any(changeset.length for changeset in self._changesets.of_plan(plan_id))

    def changes_files(self, plan_id: str) -> bool:
        """Return whether the result changes a file. The changes are read only if a rollback may have reverted
        all of them.
        """
        if not self.has_changes(plan_id):
            return False
        return not self._has_rewrites(plan_id) or bool(self.differences(plan_id))

    def differences(self, plan_id: str, fold: ChangeFold | None = None) -> Mapping[str, Difference]:
        """Return the total difference from the base. With a `fold`, reads only changes that the fold does not
        have yet.
        """
        return (fold or ChangeFold()).caught_up(self._changesets, plan_id)

    def states(self, plan_id: str, fold: ChangeFold | None = None) -> dict[str, FileState | None]:
        """Return the state of every file that differs from the base."""
        return {path: step.after for path, step in self.differences(plan_id, fold).items()}

    def base(self, plan_id: str, sandbox: Sandbox) -> str:
        """Return the tree that the plan's changes start from: the files of the repository at the last rebase,
        or else the base of the sandbox.
        """
        rebase = last_rebase(self.merge_calls(plan_id))
        return sandbox.base if rebase is None else MergeOutcome.of_call(rebase).theirs

    def own_states(self, plan_id: str, sandbox: Sandbox) -> dict[str, FileState | None]:
        """Return the state of every file that the plan changed since its base, which is the base of the last
        rebase, if any.
        """
        states, base = self.states(plan_id), self.base(plan_id, sandbox)
        if base == sandbox.base:
            return states
        return {path: step.after for path, step in sandbox.changes_of(sandbox.tree(states), base).items()}

    def unrecorded(
        self, plan_id: str, sandbox: Sandbox, fold: ChangeFold | None = None
    ) -> dict[str, Difference]:
        """Return the files of the sandbox that differ from the records."""
        recorded = self.differences(plan_id, fold)
        found = dict(sandbox.scan())
        unseen = [path for path, step in recorded.items() if step.after is not None and path not in found]
        for path in sandbox.ignored(unseen):
            # Recorded before a rule hid the file from scans: look whether it still exists.
            found[path] = Difference(recorded[path].before, sandbox.state_of(path))
        return _between(recorded, found)

    def ensure_taken_in(self, plan_id: str, sandbox: Sandbox) -> None:
        """Raise `NeedsHuman` if the sandbox has unrecorded edits of a person. Files of an interrupted call do
        not count.
        """
        if self.open_calls(plan_id):
            return
        edited = self.unrecorded(plan_id, sandbox)
        if edited:
            what = f"unrecorded edits in the sandbox: {named(edited)}"
            reread = Remedy("plan.reread", plan_id, text="Record the edits; a rollback can undo them")
            raise NeedsHuman(plan_id, what, (reread,))

    def edited_since(self, plan_id: str, last: int) -> set[str]:
        """Return the files for which edits of a person were recorded after the call with the number `last`,
        and not reverted since.
        """
        taken_in = {
            call.changeset_id
            for call in self.calls(plan_id)
            if call.number > last and _has_edits(call) and call.state is not CallState.REVERTED
        }
        changes = [change.entry for change in self.changes(plan_id) if change.changeset_id in taken_in]
        return {path for entry in changes for path, _, _ in split_renames(entry)}

    def leading_to(
        self, plan_id: str, sandbox: Sandbox, tree: str, fold: ChangeFold | None = None
    ) -> dict[str, Difference]:
        """Return the differences between the recorded states and `tree`, which the sandbox stores."""
        return _between(self.differences(plan_id, fold), sandbox.changes_of(tree))

    def leading_back(self, plan_id: str, checkpoint: int) -> dict[str, Difference]:
        """Return the differences that lead from the recorded states back to the states before the call with
        the number `checkpoint`. Raises `UnknownCheckpoint`.
        """
        return _between(self.differences(plan_id), self._differences_before(plan_id, checkpoint))

    def states_before(self, plan_id: str, checkpoint: int) -> dict[str, FileState | None]:
        """Return the state of every file that differed from the base before the call with the number
        `checkpoint`. Raises `UnknownCheckpoint`.
        """
        return {path: step.after for path, step in self._differences_before(plan_id, checkpoint).items()}

    def _differences_before(self, plan_id: str, checkpoint: int) -> dict[str, Difference]:
        later = {call.changeset_id for call in self._calls_from(plan_id, checkpoint)}
        return differences_of(
            change.entry for change in self.changes(plan_id) if change.changeset_id not in later
        )

    def calls(self, plan_id: str) -> Sequence[ToolCall]:
        """Return all calls in order. Calls that a rollback undid, or that are to be made again, have the
        state REVERTED.

        This state is computed, not stored. So a rollback takes effect in one step, and a rollback that is
        itself undone has no effect.
        """
        return _with_reverted(self._calls.of_plan(plan_id))

    def merge_calls(self, plan_id: str) -> Sequence[ToolCall]:
        """Return the calls that `open_conflicts` and `last_rebase` need, as `calls` does. A list of plans
        needs them for every plan, and other calls may have megabytes of output.
        """
        return _with_reverted(self._calls.of_tools(plan_id, _MERGES_AND_REWRITES))

    def is_rolled_back(self, plan: Plan, *, since: datetime | None = None) -> bool:
        """Return whether a rollback undid the last calls of a finished plan, so that a resume repeats them.
        A correction undoes calls too, and continues by itself. The calls of a withdrawn revision are not
        repeated. With `since`, only a rollback after this time counts.
        """
        if plan.phase_state not in _FINISHED or not self._has_rewrites(plan.id):
            return False
        last = Strategy.from_json(plan.strategy).restored
        calls = self.calls(plan.id)
        made = [call for call in calls if call.step is not None]
        made = [call for call in made if last is None or call.number <= last]
        if not made or made[-1].state is not CallState.REVERTED:
            return False
        return since is None or any(_reverts(call, made[-1], since) for call in calls)

    def _has_rewrites(self, plan_id: str) -> bool:
        """Return whether calls of the plan may be reverted. Does not read other calls, which may have
        megabytes of output."""
        return any(call.tool in (RETRY, ROLLBACK) for call in self.merge_calls(plan_id))

    def open_calls(self, plan_id: str) -> Sequence[ToolCall]:
        """Return the calls that are running, or were running when their run was interrupted."""
        return [call for call in self.calls(plan_id) if call.is_open]

    def changeset_of(self, call: ToolCall) -> Changeset | None:
        """Return the changeset of the call, if it has one."""
        return None if call.changeset_id is None else self._changesets.get(call.changeset_id)

    def latest(self, plan_id: str, step: str) -> ToolCall | None:
        """Return the last call of the step that is not reverted. Does not read the calls of other steps."""
        made = self._calls.of_step(plan_id, step)
        if not made:
            return None
        # Rewrites of a plan belong to no step.
        gone = taken_back_of((call.number for call in made), self._calls.of_step(plan_id, None))
        return next((call for call in reversed(made) if call.number not in gone), None)

    def _calls_from(self, plan_id: str, checkpoint: int) -> Sequence[ToolCall]:
        calls = self._calls.of_plan(plan_id)
        if not any(call.number == checkpoint for call in calls):
            raise UnknownCheckpoint(plan_id, str(checkpoint))
        return [call for call in calls if call.number >= checkpoint]


def _reverts(call: ToolCall, other: ToolCall, since: datetime) -> bool:
    """Return whether this call is a rollback after that time that reverted the `other` call."""
    is_rollback = call.tool == ROLLBACK and call.step is None and call.state is CallState.ENDED
    return is_rollback and checkpoint_of(call) <= other.number and (call.ended_at or since) > since


def _with_reverted(calls: Sequence[ToolCall]) -> Sequence[ToolCall]:
    """Return the calls, with the state REVERTED for those that a rollback or a retry among them undid."""
    rewrites = [call for call in calls if call.step is None]
    gone = taken_back_of((call.number for call in calls), rewrites)
    return [replace(call, state=CallState.REVERTED) if call.number in gone else call for call in calls]


def _has_edits(call: ToolCall) -> bool:
    """Return whether the call recorded edits of a person, also those that resolved a conflict."""
    resolved = call.tool == RESOLVE and is_by_hand(call) and call.arguments.get("take") == Take.EDITED.value
    return call.tool == REREAD or resolved


def named(paths: Iterable[str]) -> str:
    """Return the first few paths and the number of further ones, as text."""
    first = list(paths)
    more = f" and {len(first) - _NAMED} more" if len(first) > _NAMED else ""
    return ", ".join(first[:_NAMED]) + more


def restore_states(sandbox: Sandbox, states: Mapping[str, FileState | None]) -> None:
    """Restore the sandbox so that it differs from its base only in these file states.

    The caller holds `sandbox.writing()`. Ignored files stay as they are. Files that cannot be recorded are
    moved to a directory beside the sandbox, because they could not be restored later.
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
    """Return the differences between two trees, given the differences of both from the same base."""
    steps: dict[str, Difference] = {}
    for path in sorted({*one, *other}):
        base = (other[path] if path in other else one[path]).before
        before = one[path].after if path in one else base
        after = other[path].after if path in other else base
        if before != after:
            steps[path] = Difference(before, after)
    return steps


class ResultRead(Struct, frozen=True):
    """The records of a result, from one read. Everything that is computed from it belongs to one result.

    `base` is the tree that the changes start from, and `drift` the states in which it differs from the base
    of the sandbox.
    """

    plan_id: str
    sandbox: Sandbox
    base: str
    changes: Sequence[RecordedChange]
    drift: Mapping[str, FileState | None]
    reviews: Sequence[Review]

    def states(self, *, every_hunk: bool = False) -> dict[str, FileState | None]:
        """Return the states as `PlanResult.states`. Raises `PlanError`."""
        sandbox = self.sandbox
        states = accepted_states(self.plan_id, self.changes, self.reviews, sandbox.merge_content)
        rejected = [] if every_hunk else rejected_hunks(self.reviews)
        if rejected:
            base = sandbox.base_states({hunk.path for hunk in rejected}, self.base)
            states = without_hunks(states, base, rejected, sandbox.content, sandbox.keep_content)
        return {**self.drift, **states}

    def hunks_left_out(self) -> list[HunkId]:
        """Return the hunks that were left out, without lapsed verdicts. Raises `PlanError`."""
        rejected = rejected_hunks(self.reviews)
        return present_hunks(rejected, *self.files_of(rejected)) if rejected else []

    def files_of(
        self, hunks: Iterable[HunkId]
    ) -> tuple[Mapping[str, FileState | None], Mapping[str, FileState | None]]:
        """Return the states of the result with every hunk, and the base of the files of these hunks."""
        base = self.sandbox.base_states({hunk.path for hunk in hunks}, self.base)
        return self.states(every_hunk=True), base


class PlanResult(Struct, frozen=True):
    """Computes results from records; reads file contents from the sandbox's object store. Stateless."""

    history: PlanHistory
    reviews: SqlReviewStore
    clock: Clock

    def states(
        self, plan: Plan, sandbox: Sandbox, *, every_hunk: bool = False
    ) -> dict[str, FileState | None]:
        """Return the states of all files in which the accepted result differs from the base of the sandbox.
        This includes the changes of the repository up to the last rebase; with `every_hunk`, also the hunks
        that were left out. Raises `PlanError`.
        """
        return self.read(plan, sandbox).states(every_hunk=every_hunk)

    def read(self, plan: Plan, sandbox: Sandbox) -> ResultRead:
        """Read the records of the result."""
        reviews, history = self.reviews.of_plan(plan.id), self.history
        rebase = last_rebase(history.merge_calls(plan.id))
        if rebase is None:
            return ResultRead(plan.id, sandbox, sandbox.base, history.changes(plan.id), {}, reviews)
        outcome, changeset = MergeOutcome.of_call(rebase), str(rebase.changeset_id)
        drift = {path: step.after for path, step in sandbox.changes_of(outcome.theirs).items()}
        # The changes before the rebase count as one, made on its new base; reviews of them are in its tree.
        own = entries_between(sandbox.changes_of(outcome.tree, outcome.theirs))
        changes = [RecordedChange(changeset, number, entry) for number, entry in enumerate(own, start=1)]
        changes += history.changes(plan.id, after=changeset)
        return ResultRead(plan.id, sandbox, outcome.theirs, changes, drift, reviews)

    def base(self, plan: Plan, sandbox: Sandbox) -> str:
        """Return the tree that the changes of the result start from."""
        return self.history.base(plan.id, sandbox)

    def hunks_left_out(self, plan: Plan, sandbox: Sandbox) -> list[HunkId]:
        """Return the hunks that were left out, without lapsed verdicts. Raises `PlanError`."""
        return self.read(plan, sandbox).hunks_left_out()

    def rejected(self, plan: Plan) -> tuple[str, ...]:
        """Return the ids of all hunks that were left out."""
        return tuple(hunk.digest for hunk in rejected_hunks(self.reviews.of_plan(plan.id)))

    def lapsed_hunks(self, plan: Plan, sandbox: Sandbox) -> list[HunkId]:
        """Return the hunks that were left out before their file changed, and that need a new verdict. Raises
        `PlanError`.
        """
        rejected = rejected_hunks(self.reviews.of_plan(plan.id))
        if not rejected:
            return []
        read, rebase = self.read(plan, sandbox), last_rebase(self.history.merge_calls(plan.id))
        gone = () if rebase is None else MergeOutcome.of_call(rebase).left_out
        lapsed = lapsed_hunks(read.reviews, *read.files_of(rejected_hunks(read.reviews)))
        return [hunk for hunk in lapsed if hunk.digest not in gone]

    def ensure_decided(self, plan: Plan, sandbox: Sandbox) -> None:
        """Raise `NeedsHuman` if a hunk was left out, its file changed afterwards, and there is no new
        verdict. The result may contain the hunk again. Raises `PlanError`.
        """
        lapsed = self.lapsed_hunks(plan, sandbox)
        if lapsed:
            files = named(sorted({shown(hunk.path) for hunk in lapsed}))
            what = (
                "files changed after you left out some of their hunks; accept or reject these hunks "
                f"again: {files}"
            )
            remedies = (
                Remedy("plan.diff", plan.id, {"hunks": True}, "Show the present hunks"),
                Remedy("plan.review", plan.id, {"reject_hunks": None}, "Leave a hunk out"),
                Remedy("plan.review", plan.id, {"accept": None}, "Accept a file with all its hunks"),
            )
            raise NeedsHuman(plan.id, what, remedies)

    def decided(self, plan: Plan, sandbox: Sandbox) -> tuple[str, str]:
        """Return the tree to apply, and the tree that its changes start from. Raises `NeedsHuman` for lapsed
        verdicts, `PlanError`.
        """
        self.ensure_decided(plan, sandbox)
        return self.tree(plan, sandbox), self.base(plan, sandbox)

    def tree(self, plan: Plan, sandbox: Sandbox) -> str:
        """Return the name of the tree that would be applied."""
        return sandbox.tree(self.states(plan, sandbox))

    def diff(
        self, plan: Plan, sandbox: Sandbox, *, options: Sequence[str] = (), paths: Sequence[str] = ()
    ) -> bytes:
        """Return the git diff between the base and the result."""
        tree, base = self.tree(plan, sandbox), self.base(plan, sandbox)
        return sandbox.diff(tree, base=base, options=options, paths=paths)

    def review(self, plan: Plan, kind: ReviewKind, subject: str, *, accepted: bool) -> None:
        """Accept or leave out a file or a changeset. Raises `PlanError` if the plan has no such change."""
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
            diff = Remedy("plan.diff", plan.id, text="Show the changes")
            raise PlanError(plan.id, f"no {what} {subject!r} among the changes of the plan", (diff,))
        if kind is ReviewKind.CHANGESET and not accepted:
            self._ensure_after_rebase(plan, subject)
        self.reviews.set(Review(plan.id, kind, subject, accepted), now=self.clock.now())

    def _ensure_after_rebase(self, plan: Plan, changeset_id: str) -> None:
        """Raise `PlanError` for a changeset from before the last rebase, because the rebase merged it with
        others.
        """
        rebase = last_rebase(self.history.merge_calls(plan.id))
        if rebase is None:
            return
        later = self.history.changes(plan.id, after=rebase.changeset_id)
        if changeset_id not in {change.changeset_id for change in later}:
            back = Remedy("plan.rollback", plan.id, {"checkpoint": rebase.number}, "Roll the rebase back")
            reason = (
                f"call {rebase.number}, a rebase, merged that changeset with others; leave out its files "
                "instead"
            )
            raise PlanError(plan.id, reason, (back,))


def seconds_of_tree(calls: Iterable[CallTimes], now: datetime) -> float:
    """Return the total time in which at least one of the calls ran."""
    spans = sorted(span for call in calls if (span := _span_of(call, now)) is not None)
    total = timedelta()
    reached: datetime | None = None
    for began, ended in spans:
        start = began if reached is None else max(began, reached)
        if ended > start:  # guard: time is not counted twice
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
    if run is None:  # guard: the plan has no worker
        return None
    if call.began < run.since:  # guard: an earlier attempt was interrupted in this call
        return None
    return call.began, min(now, run.seen + _SILENCE)
