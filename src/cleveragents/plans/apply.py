"""Apply and undo of a plan's result: merge, check, then change all files or none.

One transaction writes the journal entry with the changes of the user's files, and the new state of the plan.
`settle` completes or rolls back an apply that a crash interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from cleveragents.access.model.project import remote_of
from cleveragents.apply.ports import Applied, Applier, ApplyOptions, CommitRequest, Preparation
from cleveragents.changes.model.merge_conflict import REBASE
from cleveragents.core.actions.model import CheckVerdict, Setup, failure_line
from cleveragents.core.errors import (
    ApplyRefused,
    Cancelled,
    CheckFailed,
    CleverAgentsError,
    Conflict,
    DatabaseUnreachable,
    GitFailed,
    NeedsHuman,
    OutcomeUnknown,
    PlanError,
    PolicyDenied,
    Remedy,
    RemoteHeld,
    RemoteMoved,
    RemoteUnreachable,
    ResultChanged,
    SandboxMissing,
    SandboxRefused,
    StaleFence,
    StalePlan,
    StoreBusy,
    StoreFull,
)
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.policy import Capability, Isolation, Verdict
from cleveragents.plans.apply_policy import (
    INTERRUPTED,
    MERGED_TREE,
    ensure_no_conflict,
    ensure_root_plan,
    obstacle_of,
    unknown,
)
from cleveragents.plans.checks import CheckEnvironment, ChecksFor
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.status import status_word
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.ports.plans import PlanFacts

if TYPE_CHECKING:
    from cleveragents.core.change import Difference, FileState
    from cleveragents.core.clock import Clock
    from cleveragents.core.identifiers import Fence
    from cleveragents.plans.history import PlanResult
    from cleveragents.plans.store.sql_plan_store import SqlPlanStore
    from cleveragents.processes.ports import StopSignal
    from cleveragents.sandboxes.git_sandbox import Sandbox
    from cleveragents.sandboxes.ports import Sandboxes

__all__ = ["PlanApply"]

_MOST = 10_000
_BUSY_SECONDS, _HELD_SECONDS = 30.0, 0.5
_HOME = "home"
# At least one of several concurrent pushes to a branch succeeds in each round.
_ROUNDS = 20
_NO_SANDBOX = (SandboxMissing, SandboxRefused, GitFailed, RemoteUnreachable, OSError)
_NO_STORE = (StoreBusy, StoreFull, DatabaseUnreachable, OutcomeUnknown)
_TOLD = {CheckVerdict.FAILED: "failed", CheckVerdict.NOT_RUN: "did not run", CheckVerdict.VOID: "is void"}

Told = Callable[[str], None]


class _Request(Struct, frozen=True):
    """The options of an apply, and the number of its current attempt."""

    stop: StopSignal
    commit: CommitRequest | None
    told: Told | None
    fence: Fence | None
    tree: str | None = None
    round: int = 1

    @property
    def is_last(self) -> bool:
        return self.round >= _ROUNDS

    def terms(self, base: str) -> ApplyOptions:
        branch = None if self.commit is None else self.commit.branch
        return ApplyOptions(self.told, fence=self.fence, branch=branch, stop=self.stop, base=base)


class PlanApply(Struct, frozen=True):
    """Applies and undoes plans. Stateless: any process may apply any plan, one at a time per resource."""

    plans: SqlPlanStore
    sandboxes: Sandboxes
    applier: Applier
    result: PlanResult
    checks: ChecksFor
    clock: Clock
    open_conflicts: Callable[[str], Sequence[object]] = lambda plan_id: ()
    directory_of: Callable[[Plan], Path] = lambda plan: Path(plan.resource)
    home: str = ""
    furnish: Callable[[Setup, CheckEnvironment, str], None] = lambda setup, ground, project: None
    has_owner: Callable[[Plan], bool] = lambda plan: True
    is_elsewhere: Callable[[str], bool] = lambda plan_id: False

    def apply(
        self,
        plan: Plan,
        stop: StopSignal,
        *,
        commit: CommitRequest | None = None,
        told: Told | None = None,
        fence: Fence | None = None,
        tree: str | None = None,
    ) -> tuple[Plan, Applied]:
        """Apply the plan and return it. With `tree`, raise `ResultChanged` unless this is the result.

        Raises `ApplyConflict`, `CheckFailed` or `ApplyRefused` if the result cannot be applied; the plan is
        then blocked and the user's files are unchanged. Raises `PolicyDenied`, `PlanError`, `NeedsHuman`,
        `Cancelled`.

        If the target branch moves during the apply, the result is merged again with the new commits. A job
        passes its `fence`; once another worker owns the job, nothing starts and nothing is pushed, and
        `StaleFence` is raised.
        """
        request = _Request(stop, commit, told, fence, tree)
        while True:
            try:
                return self._apply(plan, request)
            except RemoteMoved as moved:
                if request.is_last:
                    raise
                if isinstance(moved, RemoteHeld):
                    request.stop.wait(_HELD_SECONDS)
                plan = self.plans.get(plan.id)
                request = structs.replace(request, round=request.round + 1)

    def _apply(self, plan: Plan, request: _Request) -> tuple[Plan, Applied]:
        strategy = self._ensure_may_apply(plan)
        sandbox = self._opened(plan, request)
        self.result.history.ensure_taken_in(plan.id, sandbox)
        try:
            tree, base = self.result.decided(plan, sandbox)
            if request.tree not in (None, tree):  # guard: a capture, rollback or review keeps the version
                raise ResultChanged(plan.id)
        except Conflict as refused:
            if request.round > 1:  # guard: an earlier round began the apply, and no other follows
                self._constrained(plan, refused, request.fence)
            raise
        stop, fence = request.stop, request.fence
        with ExitStack() as held:
            try:
                prepared = self.applier.prepare(plan.id, sandbox, tree, request.terms(base))
                preparation = held.enter_context(prepared)
            except (ApplyRefused, RemoteUnreachable, Cancelled) as refused:
                self._refused(plan, refused, request)
                raise
            plan = self._begin(plan, preparation.merged, request)
            try:
                # A running rewrite has finished by now; a later one finds that the plan is being applied.
                with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
                    decided = self.result.decided(plan, sandbox)
                    self._ensure_whole(plan)  # guard: a rebase may have left conflicts in the same tree
                if decided != (tree, base):  # guard: apply only the tree that was approved
                    raise StalePlan(plan.id, plan.version)
                ensure_no_conflict(plan.id, preparation.conflicts)
                if not preparation.landed:
                    self._check(plan, strategy, sandbox, preparation, request)
                stop.raise_if_cancelled()
                # The plan becomes applied in the same transaction as the journal entry.
                applied = preparation.apply(request.commit)
            except BaseException as error:
                if request.is_last or not isinstance(error, RemoteMoved):
                    self._constrained(plan, error, fence)
                raise
        _tell_renames(applied, request.told)
        return self.plans.get(plan.id), applied

    def _ensure_whole(self, plan: Plan) -> None:
        """Raise `PlanError` if the result has an open conflict, or if a rebase was interrupted."""
        if self.open_conflicts(plan.id):
            resolve = Remedy("plan.resolve", plan.id, {"take": None, "path": None}, "Resolve each conflict")
            raise PlanError(plan.id, "conflicts are not resolved", (resolve,))
        if any(call.tool == REBASE for call in self.result.history.open_calls(plan.id)):
            again = Remedy("plan.rebase", plan.id, text="Rebase the plan again")
            raise PlanError(plan.id, "the rebase was interrupted", (again,))

    def _ensure_may_apply(self, plan: Plan) -> Strategy:
        """Return the strategy of the plan, after checking that its result may be applied or pushed. Raises
        `PolicyDenied`, `PlanError`.
        """
        ensure_root_plan(plan, "applied")
        strategy = Strategy.from_json(plan.strategy) if plan.strategy is not None else None
        if strategy is None:
            raise PlanError(plan.id, f"no result yet; the status is {status_word(plan)}")
        if strategy.policy.verdict(Capability.APPLY) is Verdict.DENY:
            raise PolicyDenied("applying a plan", strategy.policy.name, Capability.APPLY.value)
        self._ensure_whole(plan)
        return strategy

    def commit_apart(
        self,
        plan: Plan,
        message: str,
        tree: str | None = None,
        confirm: Callable[[str], bool] | None = None,
    ) -> str:
        """Commit the result on top of HEAD of the user's repository, and return the commit.

        No plan, file, index or branch changes. If the plan has required checks, they must have passed on the
        files of the commit; otherwise raises `PlanError`. If they passed together with uncommitted changes of
        the user, raises `NeedsHuman` unless the user agrees (`confirm`). With `tree`, raises `ResultChanged`
        unless this is the result.
        Raises `StalePlan` if the plan or its result changed meanwhile; `PolicyDenied`, `ApplyConflict`,
        `ApplyRefused`, `ApplyBusy`.
        """
        strategy = self._ensure_may_apply(plan)
        sandbox = self.sandboxes.open(plan.id)
        self.result.history.ensure_taken_in(plan.id, sandbox)
        seen = tree
        tree, base = self.result.decided(plan, sandbox)
        if seen not in (None, tree):  # guard: the checks passed on the result that was seen
            raise ResultChanged(plan.id)
        with self.applier.prepare(plan.id, sandbox, tree, ApplyOptions(base=base)) as preparation:
            with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
                decided, moved = self.result.decided(plan, sandbox), self.plans.get(plan.id)
                self._ensure_whole(plan)
            if decided != (tree, base) or moved.version != plan.version:  # guard: only what was reviewed
                raise StalePlan(plan.id, plan.version)
            ensure_no_conflict(plan.id, preparation.conflicts)
            made = preparation.commit_apart(message)
            merged = preparation.merged
        if made is None:
            raise PlanError(plan.id, "nothing to publish: HEAD already contains the result")
        commit, committed = made
        # guard: no tree leaves the machine that the required checks have not seen
        if tree != committed and any(check.required for check in strategy.checks):
            own = "the checks passed together with your uncommitted changes, which are not published"
            if tree == merged:
                if confirm is None or not confirm(f"{own}. Push the result nevertheless?"):
                    raise NeedsHuman(plan.id, f"{own}; commit your changes, then publish again")
                return commit
            again = Remedy("plan.rebase", plan.id, text="Rebase the plan, which repeats its checks")
            raise PlanError(plan.id, "the repository has changed since the checks passed", (again,))
        return commit

    def undo(
        self,
        plan: Plan,
        *,
        commit: CommitRequest | None = None,
        told: Told | None = None,
        fence: Fence | None = None,
        stop: StopSignal | None = None,
    ) -> tuple[Plan, Applied]:
        """Undo the plan and return it. Its changes are removed, and later changes stay.

        Raises the same errors as `apply`. A plan that could not be undone stays applied.
        """
        ensure_root_plan(plan, "undone")
        if plan.phase_state != (Phase.APPLY, PlanState.APPLIED):
            raise PlanError(
                plan.id,
                f"only an applied plan can be undone; this one is {status_word(plan)}",
            )
        sandbox = self.sandboxes.open(plan.id)
        terms = ApplyOptions(told, fence=fence, stop=stop)
        for left in range(_ROUNDS, 0, -1):
            try:
                with self.applier.prepare_undo(plan.id, sandbox, terms) as preparation:
                    ensure_no_conflict(plan.id, preparation.conflicts, "undone")
                    if stop is not None:  # guard: a cancelled undo changes nothing
                        stop.raise_if_cancelled()
                    applied = preparation.apply(commit)
                break
            except RemoteMoved:
                if left == 1:
                    raise
            except ApplyRefused as refused:
                raise replace(refused, wanted="undone") from refused
        _tell_renames(applied, told)
        return self.plans.get(plan.id), applied

    def taken_up(
        self, plan: Plan, fence: Fence | None, told: Told | None = None, stop: StopSignal | None = None
    ) -> Plan:
        """Take over an apply or undo whose worker died, and return the plan with the outcome recorded.

        Unlike `settle`, this waits while another plan is applied to the same resource. If `stop` is set
        meanwhile, the plan is unchanged and left to `settle`. Raises `Cancelled`, `ApplyBusy`,
        `ApplyRefused`, `RemoteUnreachable`, `StaleFence`.
        """
        try:
            with self.applier.deciding(plan.id, plan.resource, ApplyOptions(told, fence=fence, stop=stop)):
                plan = self.plans.get(plan.id)
                known = plan.id not in self.applier.undecided()  # guard: only its journal knows the outcome
                if plan.phase is Phase.APPLY and plan.state.running and known:
                    plan = self._interrupted(plan, fence)
        except RemoteUnreachable as error:
            self._undecided(plan, error, fence)
            raise
        return plan

    def settle(self) -> None:
        """Complete or roll back every apply that a dead process left unfinished, and update its plan.

        One transaction completes an apply and moves its plan. So a plan that is in state applying, while no
        process applies it, was rolled back.
        """
        self.applier.recover()
        for plan in self.plans.list(states=(PlanState.PROCESSING, PlanState.QUEUED), limit=_MOST):
            if plan.phase is Phase.APPLY:
                self._isolated(plan)

    def give_up(self, plan: Plan) -> Plan:
        """Abandon an unfinished apply of a plan that is to be deleted; its partial changes stay. Raises
        `ApplyBusy`.
        """
        where = self.applier.give_up(plan.id)
        if self._is_lost(plan):
            where = (plan.resource,)
        if where and plan.phase is Phase.APPLY and plan.state.running:
            error = f"{INTERRUPTED} and abandoned; some changes may remain in {where[0]}"
            plan = self._move(plan, PlanState.ERRORED, PlanFacts(error=error))
        return plan

    def is_left_half_done(self, plan: Plan) -> bool:
        """Return whether the interrupted apply of the plan could not be settled, so that only `give_up` can
        end it.
        """
        if self.applier.is_busy_here(plan.resource):
            return False
        return plan.id in self.applier.undecided() or self._is_lost(plan)

    def _is_lost(self, plan: Plan) -> bool:
        """Return whether the apply belongs to another machine. If that machine is gone, the apply is never
        settled.
        """
        running = plan.phase is Phase.APPLY and plan.state.running
        return running and remote_of(plan.resource) is None and self.is_elsewhere(plan.id)

    def _isolated(self, plan: Plan) -> None:
        """Settle one plan. A failure is logged, so that other plans are still settled."""
        try:
            self._settle(plan)
        except (CleverAgentsError, OSError) as error:
            import structlog

            structlog.get_logger().warning("apply.settling_failed", plan_id=plan.id, error=str(error))

    def _settle(self, plan: Plan) -> None:
        if remote_of(plan.resource) is not None:
            under_way = plan.waiting_for
            begun_here = isinstance(under_way, Mapping) and under_way.get(_HOME) == self.home
            busy = begun_here and self.applier.is_busy_here(plan.resource)
            # guard: the owner may be alive, also on another machine that took over the job
            if not busy and not self.has_owner(plan):
                self.taken_up(plan, None)
            return
        # guard: the files, locks and journals of another machine are not visible here
        if self.is_elsewhere(plan.id) or self.applier.is_busy(plan.resource):
            return
        if plan.id in self.applier.undecided():  # guard: only its journal knows the outcome
            return
        self._interrupted(plan, None)

    def _interrupted(self, plan: Plan, fence: Fence | None) -> Plan:
        error = f"{INTERRUPTED} and rolled back; apply it again"
        under_way = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        # Another machine worked in its own sandbox.
        if MERGED_TREE in under_way and under_way.get(_HOME, self.home) == self.home:
            with suppress(*_NO_SANDBOX):  # otherwise the plan could never be applied, cancelled or deleted
                # Before the plan moves: after a crash here, the next process repeats this.
                self._take_back_merged(plan, str(under_way[MERGED_TREE]))
        return self._move(plan, PlanState.ERRORED, PlanFacts(error=error), fence)

    def _take_back_merged(self, plan: Plan, merged: str) -> None:
        """Restore the recorded content of files that still have the merged content of an interrupted check.
        Files with other content were edited by a person and stay.
        """
        sandbox = self.sandboxes.open(plan.id)
        if not sandbox.keeps(merged):
            return  # another machine worked in its own sandbox
        history = self.result.history
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):  # no other process restores files meanwhile
            if self.plans.get(plan.id).version != plan.version:  # guard: later content belongs to another run
                raise StalePlan(plan.id, plan.version)
            given = {path: step.before for path, step in history.differences(plan.id).items()}
            given |= _states(sandbox.changes_of(merged))
            found = history.unrecorded(plan.id, sandbox)
            sandbox.restore(
                {
                    path: step.before
                    for path, step in found.items()
                    if path in given and given[path] == step.after  # guard: edits by a person stay
                }
            )

    def _opened(self, plan: Plan, request: _Request) -> Sandbox:
        """Open the sandbox; for a plan of another machine, make a copy from the remote."""
        try:
            return self.sandboxes.open(plan.id)
        except RemoteUnreachable as away:
            self._refused(plan, away, request)
            raise

    def _refused(
        self, plan: Plan, refused: ApplyRefused | RemoteUnreachable | Cancelled, request: _Request
    ) -> None:
        """Record in the plan why its remote refused the apply, so that a person can fix it."""
        if isinstance(refused, Cancelled):
            if request.round > 1:  # guard: an earlier round began the apply, and no other follows
                self._constrained(plan, refused, request.fence)
        elif remote_of(plan.resource) is not None:
            self._constrained(self._begin(plan, None, request), refused, request.fence)

    def _begin(self, plan: Plan, merged: str | None, request: _Request) -> Plan:
        """Move the plan to the state applying. The caller holds the lock of the resource, because an applying
        plan whose resource is not locked counts as interrupted.
        """
        fence = request.fence
        if request.round == 1:
            plan = self._move(plan, PlanState.QUEUED, None, fence)
            fence = _fence_beside(plan, fence)
        # `settle` needs these facts, and a person who looks at the plan sees them.
        under_way: dict[str, JsonValue] = {"what": "the apply that is running"}
        if merged is not None:
            under_way[MERGED_TREE] = merged
        if remote_of(plan.resource) is not None:
            under_way[_HOME] = self.home
        checks = self.checks(Path(plan.resource)) if Strategy.from_json(plan.strategy).checks else None
        isolation = None if checks is None else Isolation.of(checks.commands.isolates)
        facts = PlanFacts(waiting_for=freeze(under_way), isolation=isolation)
        return self._move(plan, PlanState.PROCESSING, facts, fence)

    def _constrained(self, plan: Plan, error: BaseException, fence: Fence | None) -> None:
        if isinstance(error, _NO_STORE):
            return  # the journal knows the outcome but is unreachable: `settle` finds out
        if plan.id in self.applier.undecided():  # guard: the rollback failed; `settle` tries again
            self._undecided(plan, error, fence)
            return
        # Either the apply succeeded and only the cleanup failed, or another process owns the plan now.
        with suppress(StalePlan, StaleFence):
            self._move(plan, *obstacle_of(error), _fence_beside(plan, fence))

    def _undecided(self, plan: Plan, error: BaseException, fence: Fence | None) -> None:
        """Record that the outcome of a push is unknown. The plan then counts neither as applied nor as
        unapplied.
        """
        known = plan.phase_state == (Phase.APPLY, PlanState.PROCESSING)
        text = unknown(error)
        if not known or not isinstance(error, RemoteUnreachable) or plan.error == text:
            return
        with suppress(StalePlan, StaleFence):  # another process finds out
            facts = PlanFacts(error=text, waiting_for=plan.waiting_for)
            self._move(plan, PlanState.PROCESSING, facts, fence)

    def _check(
        self,
        plan: Plan,
        strategy: Strategy,
        sandbox: Sandbox,
        preparation: Preparation,
        request: _Request,
    ) -> None:
        """Run the checks on the merged result, in the sandbox."""
        network = strategy.policy.verdict(Capability.NETWORK)
        ground = CheckEnvironment(
            plan_id=plan.id,
            resource=self.directory_of(plan),
            sandbox=sandbox,
            states=_states(sandbox.changes_of(preparation.merged)),
            recorded=self.result.history.states(plan.id),
            stop=request.stop,
            network=network is Verdict.ALLOW,
            network_denied=network is Verdict.DENY,
        )
        with sandbox.occupied():
            if strategy.setup is not None and strategy.checks:
                self.furnish(strategy.setup, ground, plan.project)
            runs = self.checks(ground.resource).run(strategy.checks, ground, progress=request.told)
        for run in runs:
            if run.required and run.verdict is not CheckVerdict.PASSED:  # guard: only a pass is a pass
                raise CheckFailed(plan.id, run.name, f"{_TOLD[run.verdict]}: {failure_line(run.details)}")

    def _move(
        self, plan: Plan, state: PlanState, facts: PlanFacts | None = None, fence: Fence | None = None
    ) -> Plan:
        return self.plans.move(plan, (Phase.APPLY, state), facts, now=self.clock.now(), fence=fence)


def _fence_beside(plan: Plan, fence: Fence | None) -> Fence | None:
    """Return the fence; None for a local directory, where the holder of the lock owns the apply, even after
    its job has ended.
    """
    return None if remote_of(plan.resource) is None else fence


def _tell_renames(applied: Applied, told: Told | None) -> None:
    if told is not None:
        for rename in applied.renames:
            told(f"followed a rename: {rename}")


def _states(changes: Mapping[str, Difference]) -> dict[str, FileState | None]:
    return {path: step.after for path, step in changes.items()}
