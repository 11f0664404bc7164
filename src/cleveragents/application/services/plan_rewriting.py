"""What a person does to a plan's sandbox between runs: back to a checkpoint, or their own edits taken in.

Both are recorded like a tool call, with a changeset of their own: nothing is erased, and what the sandbox
holds is always what the records add up to. One that was interrupted is finished by whoever comes next. So are
the calls of a run that died and that nobody is to go on with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from cleveragents.application.ports.changesets import ChangesetStore
from cleveragents.application.ports.clock import Clock
from cleveragents.application.ports.plans import CallStore, PlanStore
from cleveragents.application.ports.sandboxes import Sandbox, Sandboxes
from cleveragents.application.services.plan_history import (
    RETRY,
    ROLLBACK,
    PlanHistory,
    bring_to,
    checkpoint_of,
)
from cleveragents.application.services.sub_plan_words import merged_already
from cleveragents.domain.file_state import Difference, FileState, entries_between
from cleveragents.domain.json_value import FrozenObject, JsonValue
from cleveragents.domain.merge_conflict import tree_left_by
from cleveragents.domain.plan import Phase, Plan, PlanState
from cleveragents.domain.remote import remote_of
from cleveragents.domain.strategy import Strategy
from cleveragents.domain.sub_plan import is_merged
from cleveragents.domain.tool import ACP, CallState, ToolCall
from cleveragents.errors import (
    GitFailed,
    PlanError,
    SandboxBusy,
    SandboxMissing,
    SandboxRefused,
    StalePlan,
)

__all__ = ["REREAD", "PlanRewriting"]

REREAD = "reread"
"""The tool of the calls that took in what a person had edited by hand."""

_BUSY_SECONDS = 30.0
_OPEN = (CallState.STARTED, CallState.ENDING)


@dataclass(frozen=True, slots=True)
class PlanRewriting:
    """Stateless but for its stores; holds the sandbox's `writing()` while it works."""

    plans: PlanStore
    calls: CallStore
    changesets: ChangesetStore
    sandboxes: Sandboxes
    history: PlanHistory
    clock: Clock
    is_elsewhere: Callable[[str], bool] = lambda plan_id: False

    def rollback(self, plan: Plan, checkpoint: int, *, discard: bool = False) -> ToolCall:
        """The sandbox as it was before the call of that number; that call and later ones count as not made,
        so that a resumed plan makes them again. `UnknownCheckpoint`, `PlanError` while it runs, and once it
        is merged; `NeedsHuman` when there are edits by hand that were not taken in, unless they are to be
        thrown away."""
        self.history.leading_back(plan.id, checkpoint)
        with self.unmerged(plan), self._idle(plan) as sandbox:
            if not discard:
                self.history.ensure_taken_in(plan.id, sandbox)  # guard: they are in no record
            call = self._added(plan.id, ROLLBACK, CallState.STARTED, checkpoint=checkpoint)
            return self._finish(call, sandbox)

    def take_back(self, plan_id: str, checkpoint: int, sandbox: Sandbox) -> ToolCall:
        """The same for the run that works on the plan, whose `calls` this has, and so its fence: what it has
        done is its own to take back."""
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            self.settle(plan_id, sandbox)
            return self._finish(
                self._added(plan_id, ROLLBACK, CallState.STARTED, checkpoint=checkpoint), sandbox
            )

    def reread(self, plan: Plan) -> ToolCall | None:
        """Takes in what was edited by hand in the sandbox; None if nothing was. `PlanError` while it runs,
        and once it is merged."""
        with self.unmerged(plan), self._idle(plan) as sandbox:
            if not self.history.unrecorded(plan.id, sandbox):
                return None
            return self._finish(self._added(plan.id, REREAD, CallState.STARTED), sandbox)

    def bring_over(self, plan: Plan, edits: Mapping[str, FileState | None]) -> ToolCall | None:
        """Has these files be as a person had left them, as one more call; None if they are. Killed in
        between, it leaves edits that are not taken in yet. Errors as `reread`."""
        if not edits:
            return None
        with self._idle(plan) as sandbox:
            return self._brought_over(plan.id, edits, sandbox)

    def put_back(
        self, plan_id: str, edits: Mapping[str, FileState | None], sandbox: Sandbox
    ) -> ToolCall | None:
        """The same for the run that works on the plan, as `take_back`."""
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            return self._brought_over(plan_id, edits, sandbox)

    def ensure_taken_in(self, plan: Plan) -> None:
        """`NeedsHuman` when there are edits by hand that a run would throw away.

        Looked at while nobody else can work there: what a peer's run or rollback does is no edit by hand.
        `PlanError`, `StalePlan` when somebody went on with the plan meanwhile.
        """
        with suppress(SandboxMissing), self._idle(plan) as sandbox:
            self.history.ensure_taken_in(plan.id, sandbox)

    def take_back_failure(self, plan: Plan) -> ToolCall | None:
        """Has the call at which the plan failed made again: from the checkpoint before it, or, if somebody's
        edits were taken in since, on what is there now. None if the plan did not fail at a call. `NeedsHuman`
        when there are edits by hand that were not taken in."""
        self.ensure_taken_in(plan)
        made = [call for call in self.history.calls(plan.id) if call.state is not CallState.REVERTED]
        last = next((call for call in reversed(made) if call.step is not None), None)
        if last is None or not _stopped_at(last, plan):
            return None
        if last is made[-1]:
            return self.rollback(plan, last.number)
        with self._idle(plan):
            return self._added(plan.id, RETRY, CallState.ENDED, checkpoint=last.number)

    @contextmanager
    def unmerged(self, plan: Plan) -> Iterator[None]:
        """Held while something is decided about a part of another plan: it is not merged meanwhile.
        `PlanError` if it was, for what is done to it then changes nothing; `SandboxBusy`."""
        if plan.parent_id is None:
            yield
            return
        with self._parent_held(plan):
            self.ensure_unmerged(plan)
            yield

    def ensure_unmerged(self, plan: Plan) -> None:
        """`PlanError`, with what can be done instead, for a part whose result its parent has."""
        if plan.parent_id is not None and is_merged(self.history.calls(plan.parent_id), plan.key):
            raise PlanError(plan.id, merged_already(plan))

    @contextmanager
    def _parent_held(self, plan: Plan) -> Iterator[None]:
        """Whoever merges holds the parent's sandbox. Only what is done is merged, so another is free."""
        done = plan.standing == (Phase.EXECUTE, PlanState.COMPLETE)
        with ExitStack() as held:
            with suppress(SandboxMissing):  # then nobody merges either
                if done:
                    parent = self.sandboxes.open(str(plan.parent_id))
                    held.enter_context(parent.writing(timeout_seconds=_BUSY_SECONDS))
            yield

    def settle(self, plan_id: str, sandbox: Sandbox) -> None:
        """Finishes what was interrupted. The caller holds `sandbox.writing()`."""
        for call in self.history.calls(plan_id):
            if call.tool in (ROLLBACK, REREAD) and call.state is CallState.STARTED:
                self._finish(call, sandbox)

    def end_calls(self, plan: Plan, reason: str) -> None:
        """Ends the calls that were under way when whoever ran the plan died: nobody is to go on with them.
        What they had done is recorded, as the run itself would have done after a cancel.

        Killed in between, it is to be called again; twice is harmless. A call is left open while somebody
        works in the sandbox, or went on with the plan, and where only another machine can look into it.
        """
        if not self._open(plan.id):
            return
        elsewhere = self.is_elsewhere(plan.id)
        if elsewhere and remote_of(plan.resource) is None:
            return
        lost = "its sandbox is another machine's" if elsewhere else "its sandbox was removed"
        with suppress(SandboxBusy):
            try:
                sandbox = None if elsewhere else self.sandboxes.open(plan.id)
                with ExitStack() as held:
                    if sandbox is not None:
                        held.enter_context(sandbox.writing())
                    self._end_calls(plan, reason, sandbox, lost)
            except SandboxMissing:
                self._end_calls(plan, reason, None, lost)

    def _end_calls(self, plan: Plan, reason: str, sandbox: Sandbox | None, lost: str) -> None:
        if self.plans.get(plan.id).version != plan.version:  # guard: somebody went on with it
            return
        if sandbox is not None:
            self.settle(plan.id, sandbox)
        # The latest first: what a call did that was made within another one is not that one's.
        for call in reversed(self._open(plan.id)):
            now = self.clock.now()
            if call.state is CallState.STARTED:
                call = self.calls.move(call, CallState.ENDING, now=now, error=f"cancelled: {reason}")
            try:
                if sandbox is not None:
                    self._file(call, sandbox)
                    continue
                unknown = lost
            except (SandboxRefused, GitFailed) as refusal:
                unknown = str(refusal)
            said = f"{call.error or 'interrupted'}; what it changed is not recorded: {unknown}"
            self._close(call, said)

    def _open(self, plan_id: str) -> Sequence[ToolCall]:
        return [call for call in self.history.calls(plan_id) if call.state in _OPEN]

    def _file(self, call: ToolCall, sandbox: Sandbox) -> None:
        """Records what a call that is *ending* left in the sandbox, and ends it."""
        tree = tree_left_by(call)
        if call.changeset_id is None and call.tool != ACP:
            found: Mapping[str, Difference] = {}  # it only read
        elif tree is None:
            found = self.history.unrecorded(call.plan_id, sandbox)
        else:
            found = self.history.leading_to(call.plan_id, sandbox, tree)
        entries = entries_between(found, tool_call_id=call.call_id)
        if entries and call.changeset_id is None:
            changeset = self.changesets.start(call.plan_id)
            call = self.calls.move(call, CallState.ENDING, now=self.clock.now(), changeset_id=changeset)
        if entries:
            self.changesets.record_all(str(call.changeset_id), entries, key=call.call_id)
        self._close(call, call.error)

    def _close(self, call: ToolCall, error: str | None) -> None:
        if call.changeset_id is not None:
            self.changesets.close(call.changeset_id)
        state = CallState.ENDED if error is None else CallState.FAILED
        self.calls.move(call, state, now=self.clock.now(), error=error)

    @contextmanager
    def _idle(self, plan: Plan) -> Iterator[Sandbox]:
        """The sandbox, held, of a plan that nobody runs: a run waits for the sandbox before it begins."""
        sandbox = self.sandboxes.open(plan.id)
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
            now = self.plans.get(plan.id)
            if now.state.running:  # guard: what a run has done is not taken away from under it
                raise PlanError(plan.id, "it is running; cancel it first, or wait until it is done")
            if now.state.ended:
                raise PlanError(plan.id, f"it is {now.state.value}; its result can no longer be changed")
            if now.version != plan.version:  # guard: the decision was about what the plan was then
                raise StalePlan(plan.id, plan.version)
            self.settle(plan.id, sandbox)
            yield sandbox

    def _brought_over(
        self, plan_id: str, edits: Mapping[str, FileState | None], sandbox: Sandbox
    ) -> ToolCall | None:
        sandbox.restore(edits)
        if not self.history.unrecorded(plan_id, sandbox):
            return None
        return self._finish(self._added(plan_id, REREAD, CallState.STARTED), sandbox)

    def _added(self, plan_id: str, tool: str, state: CallState, **arguments: JsonValue) -> ToolCall:
        facts = FrozenObject(arguments)
        return self.calls.add(plan_id, tool, facts, step=None, state=state, now=self.clock.now())

    def _finish(self, call: ToolCall, sandbox: Sandbox) -> ToolCall:
        """Each step leaves nothing for a second time to do, so it may be begun again anywhere."""
        plan_id = call.plan_id
        back = call.tool == ROLLBACK
        if back:
            found = self.history.leading_back(plan_id, checkpoint_of(call))
        else:
            found = self.history.unrecorded(plan_id, sandbox)
        changeset = call.changeset_id
        if changeset is None:
            changeset = self.changesets.start(plan_id)
            call = self.calls.move(call, CallState.STARTED, now=self.clock.now(), changeset_id=changeset)
        entries = entries_between(found, tool_call_id=call.call_id)
        if entries:
            self.changesets.record_all(changeset, entries, key=call.call_id)
        self.changesets.close(changeset)
        if back:
            bring_to(
                sandbox, {path: step.after for path, step in found.items()} | self.history.states(plan_id)
            )
        return self.calls.move(call, CallState.ENDED, now=self.clock.now())


def _stopped_at(call: ToolCall, plan: Plan) -> bool:
    """Whether that call is why the plan did not go on."""
    step = Strategy.from_json(plan.strategy).step_of(call)
    return call.stopped_its_run if step is None else step.problem_with(call) is not None
