"""Apply and undo: merged, checked, then all of it or nothing; and the plan's moves around that.

The journal says what was done to the user's files, the plan what it counts as; both are kept in one
transaction. What a crash left half done is settled by `settle`, at the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cleveragents.access.model.project import remote_of
from cleveragents.apply.ports import Applied, Applier, ApplyOptions, CommitRequest, Preparation
from cleveragents.core.actions.model import CheckVerdict, Setup, in_a_line
from cleveragents.core.change import Difference, FileState
from cleveragents.core.clock import Clock
from cleveragents.core.errors import (
    ApplyRefused,
    Cancelled,
    CheckFailed,
    CleverAgentsError,
    DatabaseUnreachable,
    GitFailed,
    OutcomeUnknown,
    PlanError,
    PolicyDenied,
    Remedy,
    RemoteHeld,
    RemoteMoved,
    RemoteUnreachable,
    SandboxMissing,
    SandboxRefused,
    StaleFence,
    StalePlan,
    StoreBusy,
    StoreFull,
)
from cleveragents.core.identifiers import Fence
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
from cleveragents.plans.history import PlanResult
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.strategy import Strategy
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.processes.ports import StopSignal
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import Sandboxes

__all__ = ["PlanApply"]

_MOST = 10_000
_BUSY_SECONDS, _HELD_SECONDS = 30.0, 0.5
_HOME = "home"
# One of those who push to a branch at once gets through in each round.
_ROUNDS = 20
_NO_SANDBOX = (SandboxMissing, SandboxRefused, GitFailed, RemoteUnreachable, OSError)
_NO_STORE = (StoreBusy, StoreFull, DatabaseUnreachable, OutcomeUnknown)
_TOLD = {CheckVerdict.FAILED: "failed", CheckVerdict.NOT_RUN: "did not run", CheckVerdict.VOID: "is void"}

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Request:
    """How an apply was asked for, and how often it was tried."""

    stop: StopSignal
    commit: CommitRequest | None
    told: Told | None
    fence: Fence | None
    round: int = 1

    @property
    def is_last(self) -> bool:
        return self.round >= _ROUNDS

    @property
    def terms(self) -> ApplyOptions:
        branch = None if self.commit is None else self.commit.branch
        return ApplyOptions(self.told, fence=self.fence, branch=branch, stop=self.stop)


@dataclass(frozen=True, slots=True)
class PlanApply:
    """Stateless but for its parts: any process may apply any plan; one at a time per resource."""

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
    ) -> tuple[Plan, Applied]:
        """The plan, applied. `ApplyConflict`, `CheckFailed`, `ApplyRefused`: it is constrained, and nothing
        of the user's was touched. `PolicyDenied`, `PlanError`, `NeedsHuman`, `Cancelled`.

        Where a branch moved while it was to be moved, it is merged with what came. Whoever applies a plan as
        a job gives its `fence`: once that is another's, nothing is begun or pushed. `StaleFence`.
        """
        request = _Request(stop, commit, told, fence)
        while True:
            try:
                return self._apply(plan, request)
            except RemoteMoved as moved:
                if request.is_last:
                    raise
                if isinstance(moved, RemoteHeld):
                    request.stop.wait(_HELD_SECONDS)
                plan = self.plans.get(plan.id)
                request = replace(request, round=request.round + 1)

    def _apply(self, plan: Plan, request: _Request) -> tuple[Plan, Applied]:
        ensure_root_plan(plan, "applied")
        strategy = Strategy.from_json(plan.strategy) if plan.strategy is not None else None
        if strategy is None:
            raise PlanError(plan.id, f"it is {plan.phase.value}/{plan.state.value} and has no result yet")
        if strategy.policy.verdict(Capability.APPLY) is Verdict.DENY:
            raise PolicyDenied("applying a plan", strategy.policy.name, Capability.APPLY.value)
        if self.open_conflicts(plan.id):  # guard: both sides of a conflict are in its files
            resolve = Remedy("plan.resolve", plan.id, {"take": None, "path": None}, "Resolve each conflict")
            raise PlanError(plan.id, "its sub-plans conflict, and the conflicts are not resolved", (resolve,))
        sandbox = self._opened(plan, request)
        self.result.history.ensure_taken_in(plan.id, sandbox)
        tree = self.result.tree(plan, sandbox)
        stop, fence = request.stop, request.fence
        with ExitStack() as held:
            try:
                preparation = held.enter_context(self.applier.prepare(plan.id, sandbox, tree, request.terms))
            except (ApplyRefused, RemoteUnreachable, Cancelled) as refused:
                self._refused(plan, refused, request)
                raise
            plan = self._begin(plan, preparation.merged, request)
            try:
                # Whoever was rewriting it has finished; whoever comes later finds that it is being applied.
                with sandbox.writing(timeout_seconds=_BUSY_SECONDS):
                    decided = self.result.tree(plan, sandbox)
                if decided != tree:  # guard: what is applied is what was decided on
                    raise StalePlan(plan.id, plan.version)
                ensure_no_conflict(plan.id, preparation.conflicts)
                if not preparation.landed:
                    self._check(plan, strategy, sandbox, preparation, request)
                stop.raise_if_cancelled()
                # The plan is applied in the transaction in which the journal says so.
                applied = preparation.apply(request.commit)
            except BaseException as error:
                if request.is_last or not isinstance(error, RemoteMoved):
                    self._constrained(plan, error, fence)
                raise
        _tell_renames(applied, request.told)
        return self.plans.get(plan.id), applied

    def undo(
        self,
        plan: Plan,
        *,
        commit: CommitRequest | None = None,
        told: Told | None = None,
        fence: Fence | None = None,
        stop: StopSignal | None = None,
    ) -> tuple[Plan, Applied]:
        """The plan, undone: what it brought in is taken out, what came after it stays. Raises as `apply`;
        a plan that could not be undone stays applied."""
        ensure_root_plan(plan, "undone")
        if plan.phase_state != (Phase.APPLY, PlanState.APPLIED):
            raise PlanError(plan.id, f"it is {plan.state.value}; only an applied plan can be undone")
        sandbox = self.sandboxes.open(plan.id)
        terms = ApplyOptions(told, fence=fence, stop=stop)
        for left in range(_ROUNDS, 0, -1):
            try:
                with self.applier.prepare_undo(plan.id, sandbox, terms) as preparation:
                    ensure_no_conflict(plan.id, preparation.conflicts, "undone")
                    if stop is not None:  # guard: who was cancelled meanwhile takes nothing out
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
        """For who is to apply or undo a plan in the place of who did not get to its end: the plan, with what
        that one did found out. Unlike `settle`, it waits for whoever applies another plan meanwhile, unless
        it is told to `stop`: then the plan is as it was, for `settle`. `Cancelled`, `ApplyBusy`,
        `ApplyRefused`, `RemoteUnreachable`, `StaleFence`."""
        try:
            with self.applier.deciding(plan.id, plan.resource, ApplyOptions(told, fence=fence, stop=stop)):
                plan = self.plans.get(plan.id)
                known = plan.id not in self.applier.undecided()  # guard: only its journal knows what is left
                if plan.phase is Phase.APPLY and plan.state.running and known:
                    plan = self._interrupted(plan, fence)
        except RemoteUnreachable as error:
            self._undecided(plan, error, fence)
            raise
        return plan

    def settle(self) -> None:
        """Completes or takes back what dead processes left half applied, and moves their plans.

        What was completed moved its plan in the same transaction. A plan that is still being applied, by
        nobody, was taken back.
        """
        self.applier.recover()
        for plan in self.plans.list(states=(PlanState.PROCESSING, PlanState.QUEUED), limit=_MOST):
            if plan.phase is Phase.APPLY:
                self._isolated(plan)

    def give_up(self, plan: Plan) -> Plan:
        """For a plan that is to be deleted: what is half applied, and could not be settled, stays so.
        `ApplyBusy`."""
        where = self.applier.give_up(plan.id)
        if self._is_lost(plan):
            where = (plan.resource,)
        if where and plan.phase is Phase.APPLY and plan.state.running:
            error = f"applying it was interrupted, and given up; some of it may be left in {where[0]}"
            plan = self._move(plan, PlanState.ERRORED, PlanFacts(error=error))
        return plan

    def is_left_half_done(self, plan: Plan) -> bool:
        """Whether only `give_up` ends it: an apply or an undo was interrupted and could not be settled."""
        if self.applier.is_busy_here(plan.resource):
            return False
        return plan.id in self.applier.undecided() or self._is_lost(plan)

    def _is_lost(self, plan: Plan) -> bool:
        """Whether another machine applies it, to files of its own: one that is gone for good never settles
        it."""
        running = plan.phase is Phase.APPLY and plan.state.running
        return running and remote_of(plan.resource) is None and self.is_elsewhere(plan.id)

    def _isolated(self, plan: Plan) -> None:
        """One that cannot be settled now keeps nobody from settling the others."""
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
            # guard: who applies it may be alive, on another machine, too, with the job of one that died
            if not busy and not self.has_owner(plan):
                self.taken_up(plan, None)
            return
        # guard: another machine's files, locks and journals are not to be seen from here
        if self.is_elsewhere(plan.id) or self.applier.is_busy(plan.resource):
            return
        if plan.id in self.applier.undecided():  # guard: only its journal knows what of it is left
            return
        self._interrupted(plan, None)

    def _interrupted(self, plan: Plan, fence: Fence | None) -> Plan:
        error = f"{INTERRUPTED}, and nothing of it is left; apply it again"
        under_way = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        # Where another machine was at it, that was in a sandbox of its own.
        if MERGED_TREE in under_way and under_way.get(_HOME, self.home) == self.home:
            with suppress(*_NO_SANDBOX):  # else nobody could ever apply, cancel or delete it
                # Before the plan says so: whoever dies in between is followed by another.
                self._take_back_merged(plan, str(under_way[MERGED_TREE]))
        return self._move(plan, PlanState.ERRORED, PlanFacts(error=error), fence)

    def _take_back_merged(self, plan: Plan, merged: str) -> None:
        """A check may have been at work on the merged result. What is not exactly that is somebody's."""
        sandbox = self.sandboxes.open(plan.id)
        if not sandbox.keeps(merged):
            return  # another machine was at it, in a sandbox of its own
        history = self.result.history
        with sandbox.writing(timeout_seconds=_BUSY_SECONDS):  # nobody takes it back after us
            if self.plans.get(plan.id).version != plan.version:  # guard: what is there since is somebody's
                raise StalePlan(plan.id, plan.version)
            given = {path: step.before for path, step in history.differences(plan.id).items()}
            given |= _states(sandbox.changes_of(merged))
            found = history.unrecorded(plan.id, sandbox)
            sandbox.restore(
                {
                    path: step.before
                    for path, step in found.items()
                    if path in given and given[path] == step.after  # guard: nobody's edits are wiped
                }
            )

    def _opened(self, plan: Plan, request: _Request) -> Sandbox:
        """A copy of another machine's is made of what the remote has."""
        try:
            return self.sandboxes.open(plan.id)
        except RemoteUnreachable as away:
            self._refused(plan, away, request)
            raise

    def _refused(
        self, plan: Plan, refused: ApplyRefused | RemoteUnreachable | Cancelled, request: _Request
    ) -> None:
        """A remote is as somebody has to change it: the plan says so, whoever it was that tried."""
        if isinstance(refused, Cancelled):
            if request.round > 1:  # guard: an earlier round began it, and nobody goes on
                self._constrained(plan, refused, request.fence)
        elif remote_of(plan.resource) is not None:
            self._constrained(self._begin(plan, None, request), refused, request.fence)

    def _begin(self, plan: Plan, merged: str | None, request: _Request) -> Plan:
        """Inside the resource's lock: a plan that is being applied while nobody holds that is nobody's."""
        fence = request.fence
        if request.round == 1:
            plan = self._move(plan, PlanState.QUEUED, None, fence)
            fence = _fence_beside(plan, fence)
        # Kept for `settle`; and whoever looks at the plan meanwhile reads what it is about.
        under_way: dict[str, JsonValue] = {"what": "the apply that is under way"}
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
            return  # whether it was applied is in the journal, which could not be reached: `settle` finds out
        if plan.id in self.applier.undecided():  # guard: it could not be taken back, and `settle` tries again
            self._undecided(plan, error, fence)
            return
        # It was applied, and only the tidying up failed; or it is another's by now.
        with suppress(StalePlan, StaleFence):
            self._move(plan, *obstacle_of(error), _fence_beside(plan, fence))

    def _undecided(self, plan: Plan, error: BaseException, fence: Fence | None) -> None:
        """Of one whose push nobody can ask about now. It is not to be taken for one that was not applied."""
        known = plan.phase_state == (Phase.APPLY, PlanState.PROCESSING)
        text = unknown(error)
        if not known or not isinstance(error, RemoteUnreachable) or plan.error == text:
            return
        with suppress(StalePlan, StaleFence):  # somebody else finds out
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
        """Runs the checks on what would result, in the sandbox."""
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
                raise CheckFailed(plan.id, run.name, f"{_TOLD[run.verdict]}: {in_a_line(run.details)}")

    def _move(
        self, plan: Plan, state: PlanState, facts: PlanFacts | None = None, fence: Fence | None = None
    ) -> Plan:
        return self.plans.move(plan, (Phase.APPLY, state), facts, now=self.clock.now(), fence=fence)


def _fence_beside(plan: Plan, fence: Fence | None) -> Fence | None:
    """A directory that we hold is ours, though our job was ended since: nobody else ends what we began."""
    return None if remote_of(plan.resource) is None else fence


def _tell_renames(applied: Applied, told: Told | None) -> None:
    if told is not None:
        for rename in applied.renames:
            told(f"followed a rename: {rename}")


def _states(changes: Mapping[str, Difference]) -> dict[str, FileState | None]:
    return {path: step.after for path, step in changes.items()}
