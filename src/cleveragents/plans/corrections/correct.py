"""Corrections of plans: supersede wrong decisions, revert their work, and plan again.

A correction has four steps. First the plan stops. Second, its sandbox rolls back to the checkpoint; after a
crash at this point, the plan still has its old decisions and repeats only its last tasks. Third, one
transaction supersedes the decisions and lets the plan wait in Strategize. Fourth, the plan is queued. So the
plan can be corrected or resumed after any step, and never continues with superseded decisions.

Recorded edits of a person are calls, so a rollback reverts them. The edits of a file that only a person
changed belong to no decision, so they are restored. A sub-plan that carries out no superseded decision
continues, unless it started from files that are reverted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from cleveragents.changes.model.merge_conflict import has_rebased_since
from cleveragents.core.change import Difference, FileState, differences_of, split_renames, states_after
from cleveragents.core.decision import Decision, DecisionState
from cleveragents.core.errors import JobAlreadyEnded, PlanError, Remedy, SandboxMissing, UnknownDecision
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.text.redaction import redact_content_text, redact_text
from cleveragents.core.tool import CallState
from cleveragents.jobs.model.job import JobState
from cleveragents.plans.history import REREAD, PlanHistory
from cleveragents.plans.model.correction import (
    MERGE,
    MOST_RETURNS,
    Correction,
    NewCorrection,
    carrying_out,
    checkpoint_for,
    tasks_since,
    undone_with,
)
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.status import status_word
from cleveragents.plans.model.strategy import ReadyResult, Strategy, Task, earlier_result
from cleveragents.plans.model.sub_plan import can_continue, is_merged
from cleveragents.plans.pause import PlanPause, waiting_for_correction, waiting_in
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.queue import resume_payload

if TYPE_CHECKING:
    from cleveragents.core.clock import Clock
    from cleveragents.core.identifiers import Fence
    from cleveragents.plans.calls.tool_execution import ToolExecution
    from cleveragents.plans.ports.decisions import DecisionStore
    from cleveragents.plans.sandbox_edits import SandboxEdits
    from cleveragents.plans.store.sql_decision_store import SqlCorrectionStore
    from cleveragents.plans.store.sql_plan_store import InTransaction
    from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["CorrectionEffects", "PlanCorrection", "UndoneWork", "undone_work"]


_NAME = 60


class CorrectionEffects(Struct, frozen=True):
    """The effect of a correction: the superseded decisions, the calls from `checkpoint` on (None if
    there are none), their tasks and the changed files. Of a person's edits, `edits_lost` are reverted and
    `edits_kept` stay. Of the unmerged sub-plans, `sub_plans` are cancelled and `sub_plans_kept` continue.
    """

    decision: Decision
    superseded: tuple[Decision, ...]
    checkpoint: int | None
    calls: int
    tasks: tuple[str, ...]
    paths: tuple[str, ...]
    sub_plans: tuple[str, ...]
    sub_plans_kept: tuple[str, ...] = ()
    edits_kept: tuple[str, ...] = ()
    edits_lost: tuple[str, ...] = ()


class _Asked(Struct, frozen=True):
    """The options of a correction: the new model, if any, the idempotency claim of the request, the numbers
    of the comments to send, and the only version of the plan that may be corrected, if any.
    """

    model: str | None
    claim: IdempotencyClaim | None
    comments: tuple[int, ...] = ()
    version: int | None = None


class PlanCorrection(Struct, frozen=True):
    """Corrects plans. Stateless: any thread and process may correct a plan, and one of two concurrent
    corrections wins.
    """

    decisions: DecisionStore
    corrections: SqlCorrectionStore
    sandbox_edits: SandboxEdits
    pausing: PlanPause
    clock: Clock
    faults: FaultPoints = field(default_factory=NoFaults)

    @property
    def history(self) -> PlanHistory:
        return self.sandbox_edits.history

    def preview(self, plan: Plan, number: int) -> CorrectionEffects:
        """Return the effects of a correction of decision `number`, without making it. Raises `PlanError` if
        the plan has no such decision or the decision no longer holds.
        """
        every = self.decisions.of_plan(plan.id)
        decision = self._holding(plan, every, number)
        strategy, calls = _strategy_of(plan), self.history.calls(plan.id)
        superseded, checkpoint = undone_with(strategy, calls, every, number)
        work = UndoneWork() if checkpoint is None else undone_work(self.history, plan.id, checkpoint)
        kept, gone = self._parts(plan, superseded, checkpoint, work)
        cancelled, staying = tuple(one.id for one in gone), tuple(one.id for one in kept)
        if checkpoint is None:
            return CorrectionEffects(decision, superseded, None, 0, (), (), cancelled, staying)
        counting = [call for call in calls if call.state is not CallState.REVERTED]
        back = self.history.leading_back(plan.id, checkpoint)
        return CorrectionEffects(
            decision=decision,
            superseded=superseded,
            checkpoint=checkpoint,
            calls=sum(call.number >= checkpoint for call in counting),
            tasks=tuple(task.name for task in tasks_since(strategy, calls, checkpoint)),
            paths=tuple(path for path in back if path not in work.edits),
            sub_plans=cancelled,
            sub_plans_kept=staying,
            edits_kept=tuple(path for path in back if path in work.edits),
            edits_lost=work.lost,
        )

    def correct(
        self,
        plan: Plan,
        number: int,
        guidance: str,
        *,
        model: str | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> tuple[Correction, Plan]:
        """Supersede the decision and all decisions that followed from it, revert their work, and queue the
        plan, which is planned again with this guidance. A running plan is stopped first.

        Raises `PlanError` if the plan has ended or has no such decision; `NeedsHuman` if its sandbox has
        unrecorded edits; the errors of `PlanPause.pause`; `StalePlan` if the plan was changed meanwhile;
        `RequestUnderWay` if another request took over the claim.
        """
        words = _sound(plan, guidance)
        self.ensure_correctable(plan)
        self.preview(plan, number)  # report errors before anything stops
        plan = self._paused(plan)
        undoing = self.preview(plan, number)
        gone = [self.sandbox_edits.plans.get(child) for child in undoing.sub_plans]
        self.pausing.end_sub_plans(plan, gone)
        outcome = self._outcome(plan)
        self.sandbox_edits.ensure_taken_in(plan)  # guard: a run resets the sandbox to the records
        if undoing.checkpoint is not None:
            work = undone_work(self.history, plan.id, undoing.checkpoint)
            self.sandbox_edits.rollback(plan, undoing.checkpoint)
            self.sandbox_edits.bring_over(plan, work.edits)  # guard: a person's edits belong to no decision
        self.faults.reach("correct.rolled_back")
        made = NewCorrection(
            guidance=words,
            decision=number,
            superseded=tuple(decision.number for decision in undoing.superseded),
            checkpoint=undoing.checkpoint,
            outcome=outcome,
        )
        return self._kept(plan, made, Phase.STRATEGIZE, _Asked(model, claim), gone=gone)

    def append(
        self, plan: Plan, guidance: str, *, model: str | None = None, claim: IdempotencyClaim | None = None
    ) -> tuple[Correction, Plan]:
        """Add guidance without reverting anything, and queue the plan. Later runs of actors receive the
        guidance, and a plan past Strategize gets one more task. Raises the same errors as `correct`.
        """
        words = _sound(plan, guidance)
        task = Task(_name_of(words), words)
        return self._continued(plan, words, task, _Asked(model, claim))

    def revise(
        self,
        plan: Plan,
        guidance: str,
        task: Task,
        comments: Sequence[int],
        *,
        model: str | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> tuple[Correction, Plan]:
        """Send these comments to the executor as one more task, and queue the plan. Nothing is reverted. The
        comments count as sent if and only if the task is stored.

        Raises `PlanError` if the plan runs or is still being planned; `StalePlan` if the plan has moved since
        it was read, because another revision may have sent the same comments; the errors of `correct`.
        """
        self.ensure_revisable(plan)
        asked = _Asked(model, claim, tuple(comments), plan.version)
        return self._continued(plan, _sound(plan, guidance), task, asked)

    def _continued(self, plan: Plan, words: str, task: Task, asked: _Asked) -> tuple[Correction, Plan]:
        """Queue the plan with one more task; a plan that is still being planned only gets the guidance."""
        self.ensure_correctable(plan)
        plan = self._paused(plan, asked.version)
        self.sandbox_edits.ensure_taken_in(plan)  # guard: a run resets the sandbox to the records
        made = NewCorrection(guidance=words, outcome=self._outcome(plan))
        if plan.phase is Phase.STRATEGIZE:
            return self._kept(plan, made, Phase.STRATEGIZE, asked)
        if plan.state is PlanState.ERRORED:
            with suppress(SandboxMissing):
                self.sandbox_edits.take_back_failure(plan)
        strategy = Strategy.from_json(plan.strategy).with_task(task, words, self._ready(plan))
        return self._kept(plan, made, Phase.EXECUTE, asked, strategy)

    def _ready(self, plan: Plan) -> ReadyResult | None:
        """Return the present result of the plan; None if it has none."""
        if plan.phase is Phase.EXECUTE and plan.state is not PlanState.COMPLETE:
            return None
        strategy, calls = Strategy.from_json(plan.strategy), self.history.calls(plan.id)
        blocked = plan.state is PlanState.CONSTRAINED and not has_rebased_since(calls, plan.updated_at)
        blocked = blocked and not self.history.is_rolled_back(plan, since=plan.updated_at)
        return ReadyResult(
            call=max((call.number for call in calls), default=0),
            correction=len(self.corrections.of_plan(plan.id)),
            tasks=len(strategy.tasks),
            guidance=len(strategy.guidance),
            job=plan.job_id,
            answer=plan.answer,
            blocked=plan.error if blocked else None,
            obstacle=plan.waiting_for if blocked else None,
        )

    def withdraw(self, plan: Plan, *, discard: bool = False, also: InTransaction | None = None) -> Plan:
        """Withdraw the revisions that have not passed the required checks: restore the result from before
        them, which is then ready again, or blocked if it was, and which only a person applies.
        `PlanComments.withdraw` also reopens their comments, so that the next revision sends them: `also` is
        done in the transaction that moves the plan.

        Raises `PlanError` if there is no such revision; the errors of `SandboxEdits.restore`.
        """
        ready = earlier_result(plan)
        if ready is None:
            log = Remedy("plan.log", plan.id, text="Find the number of a call to roll back to")
            raise PlanError(plan.id, "no unfinished revision with an earlier result to return to", (log,))
        strategy = Strategy.from_json(plan.strategy).before(ready, len(self.corrections.of_plan(plan.id)))
        # The plan leaves the job of the revision first: a worker that claims it does nothing.
        facts = PlanFacts(
            strategy.to_json(),
            waiting_for=ready.obstacle,
            error=ready.blocked,
            job_id=self._ended_job(ready),
            answer=ready.answer or "",
        )
        restored = self.sandbox_edits.restore(plan, ready, facts, discard=discard, also=also)
        self._end_waiting_job(plan)
        self.pausing.lifecycle.wake(restored)
        return restored

    def _ended_job(self, ready: ReadyResult) -> str:
        """Return the job that made this result, whose model the next job uses; "" if that job could still
        apply the result.
        """
        job = None if ready.job is None else self.pausing.job(ready.job)
        return job.id if job is not None and job.state.ended else ""

    def _end_waiting_job(self, plan: Plan) -> None:
        """Cancel the job of a withdrawn revision that waits for the reset of a usage limit or for another
        attempt.
        """
        job = None if plan.job_id is None else self.pausing.job(plan.job_id)
        if job is not None and job.state is JobState.QUEUED:  # guard: a run at its end needs no cancel
            with suppress(JobAlreadyEnded):
                self.pausing.jobs.request_cancel(job.id, "the revision was withdrawn", now=self.clock.now())

    def gone_on_with(self, plan: Plan, model: str | None = None) -> Plan:
        """Queue the plan if a process recorded its correction and died before it queued the plan."""
        # By its kind: an earlier version stored other words.
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        if plan.state is not PlanState.WAITING or waiting.get("for") != "correction":
            return plan
        return self.pausing.lifecycle.queueing.queued(plan, resume_payload(model))

    def think_again(self, plan: Plan, findings: str, execution: ToolExecution, fence: Fence) -> Plan | None:
        """Revert all work of the plan, supersede all its decisions, and move it to `strategize/queued`, where
        the same job continues. Called by the run that owns the plan, if the result shows that decisions were
        wrong.

        Returns None and changes nothing if the plan has returned to Strategize as often as allowed, or has no
        strategist.
        Raises `StalePlan`, `StaleFence` if the run lost the plan.
        """
        strategy = Strategy.from_json(plan.strategy)
        returns = sum(one.made.by_itself for one in self.corrections.of_plan(plan.id))
        if returns >= MOST_RETURNS:  # guard: a plan does not go back forever
            return None
        if strategy.casting is None or strategy.casting.strategize is None:
            return None
        held = [d for d in self.decisions.of_plan(plan.id) if d.state is DecisionState.ACTIVE]
        checkpoint = checkpoint_for(strategy, self.history.calls(plan.id), ())
        made = NewCorrection(
            # A reviewer quotes code, in which `password = load()` is no secret.
            guidance=redact_content_text(findings.strip()),
            decision=min((decision.number for decision in held), default=None),
            superseded=tuple(decision.number for decision in held),
            checkpoint=checkpoint,
            outcome=execution.sandbox.tree(self.history.states(plan.id)),
            by_itself=True,
        )
        if checkpoint is not None:
            own = replace(self.sandbox_edits, calls=execution.calls)
            edits = undone_work(self.history, plan.id, checkpoint).edits
            own.take_back(plan.id, checkpoint, execution.sandbox)
            own.put_back(plan.id, edits, execution.sandbox)
        self.faults.reach("correct.rolled_back")
        way = ((Phase.STRATEGIZE, PlanState.QUEUED),)
        _, moved = self.corrections.add(plan, made, way, now=self.clock.now(), fence=fence)
        return moved

    def ensure_revisable(self, plan: Plan) -> None:
        """Raise `PlanError`, with remedies, if the plan has no result that an executor could revise."""
        self.ensure_correctable(plan)
        if plan.phase is Phase.STRATEGIZE or plan.state.running:
            correct = Remedy("plan.correct", plan.id, {"append": True, "guidance": None}, "Add guidance")
            raise PlanError(plan.id, f"{status_word(plan)}, so there is no result to revise yet", (correct,))

    def ensure_correctable(self, plan: Plan) -> None:
        """Raise `PlanError`, with remedies, if nothing in the plan can be corrected."""
        anew = "start a new plan"
        if plan.state.ended:
            raise PlanError(plan.id, f"already {status_word(plan)}, which is final; {anew}")
        if plan.phase is Phase.APPLY and plan.state is PlanState.ERRORED:
            again = Remedy("plan.apply", plan.id, text="Apply the plan again")
            reject = Remedy("plan.reject", plan.id, text="Discard it")
            raise PlanError(plan.id, "cannot be corrected, because its last apply failed", (again, reject))
        if plan.strategy is not None and Strategy.from_json(plan.strategy).casting is None:
            raise PlanError(plan.id, f"a plan of fixed steps has no decisions to correct; {anew}")
        if plan.parent_id is not None and self._is_merged(plan):
            tree = Remedy("plan.tree", plan.parent_id, text="List the decisions of that plan")
            raise PlanError(plan.id, f"already merged into plan {plan.parent_id}; correct that plan", (tree,))

    def _is_merged(self, plan: Plan) -> bool:
        calls = self.history.calls(str(plan.parent_id))
        return any(call.step == f"{MERGE}{plan.key}" and call.state is CallState.ENDED for call in calls)

    def _holding(self, plan: Plan, every: Sequence[Decision], number: int) -> Decision:
        decision = next((one for one in every if one.number == number), None)
        if decision is None:
            raise UnknownDecision(plan.id, number, len(every))
        if decision.state is not DecisionState.ACTIVE:
            by = next((c for c in self.corrections.of_plan(plan.id) if number in c.made.superseded), None)
            how = "was rolled back" if by is None else f"was already superseded by correction {by.number}"
            raise PlanError(plan.id, f"decision {number} {how}", (_tree(plan),))
        return decision

    def _parts(
        self, plan: Plan, superseded: Sequence[Decision], checkpoint: int | None, work: UndoneWork
    ) -> tuple[list[Plan], list[Plan]]:
        """Return the unmerged sub-plans that continue, and those that the correction cancels."""
        strategy = _strategy_of(plan)
        parts = {task.part(n) for n, task in enumerate(strategy.tasks, start=1) if task.sub_plan}
        parts -= carrying_out(strategy, superseded)
        calls = self.history.calls(plan.id)
        before = [call for call in calls if checkpoint is None or call.number < checkpoint]
        kept: list[Plan] = []
        gone: list[Plan] = []
        for child in self.sandbox_edits.plans.children(plan.id):
            if not (child.state.ended or is_merged(before, child.key)):
                stays = (
                    child.key in parts and can_continue(child) and not self._is_built_on(work, plan, child)
                )
                (kept if stays else gone).append(child)
        return kept, gone

    def _is_built_on(self, work: UndoneWork, plan: Plan, child: Plan) -> bool:
        """Return whether the sub-plan started from reverted work."""
        start = child.request.get("start")
        if not work.touched or not isinstance(start, Mapping):
            return False
        return work.is_in(self.sandbox_edits.sandboxes.open(plan.id).changes_of(str(start["tree"])))

    def _paused(self, plan: Plan, version: int | None = None) -> Plan:
        plan = self.pausing.pause(plan, sub_plans=False, version=version)
        self.faults.reach("correct.paused")
        self.ensure_correctable(plan)  # it may have ended before it stopped
        return plan

    def _outcome(self, plan: Plan) -> str | None:
        """Return the name of the current tree of the plan."""
        try:
            sandbox = self.sandbox_edits.sandboxes.open(plan.id)
        except SandboxMissing:
            return None
        return sandbox.tree(self.history.states(plan.id))

    def _kept(
        self,
        plan: Plan,
        made: NewCorrection,
        phase: Phase,
        asked: _Asked,
        strategy: Strategy | None = None,
        gone: Sequence[Plan] = (),
    ) -> tuple[Correction, Plan]:
        facts = PlanFacts(
            strategy=None if strategy is None else strategy.to_json(),
            waiting_for=waiting_for_correction(plan),
        )
        kept, moved = self.corrections.add(
            plan,
            made,
            waiting_in(phase),
            facts,
            now=self.clock.now(),
            claim=asked.claim,
            sent=asked.comments,
        )
        self.faults.reach("correct.kept")
        for child in gone:  # the complete ones; the others are cancelled already
            with suppress(PlanError):
                self.pausing.lifecycle.cancel(child, f"the parent plan {plan.id} is being corrected")
        return kept, self.pausing.lifecycle.queue(moved, resume_payload(asked.model))


def _strategy_of(plan: Plan) -> Strategy:
    """Return the strategy of the plan; empty while it is still being planned."""
    return Strategy(()) if plan.strategy is None else Strategy.from_json(plan.strategy)


def _sound(plan: Plan, guidance: str) -> str:
    # Masked like a goal: guidance is text for models and people, not code.
    words = redact_text(guidance.strip())
    if not words:
        raise PlanError(plan.id, "the guidance is empty; state the right decision and why")
    return words


def _name_of(guidance: str) -> str:
    first = " ".join(guidance.split())
    return first if len(first) <= _NAME else f"{first[: _NAME - 1]}…"


def _tree(plan: Plan) -> Remedy:
    return Remedy("plan.tree", plan.id, text="List the decisions")


class UndoneWork(Struct, frozen=True):
    """The work since a checkpoint, by calls and by a person.

    `edits` are the states of files that only a person changed. `lost` are files that both a person and calls
    changed. `touched` maps each file that calls changed to its state at the checkpoint. `differing` are all
    differences from the base at the checkpoint.
    """

    edits: Mapping[str, FileState | None] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    touched: Mapping[str, FileState | None] = field(default_factory=dict)
    differing: Mapping[str, Difference] = field(default_factory=dict)

    def is_in(self, start: Mapping[str, Difference]) -> bool:
        """Return whether a tree contains some of the undone work. `start` has the differences between the
        base and the tree.
        """
        return any(self._in(start, path) != state for path, state in self.touched.items())

    def _in(self, start: Mapping[str, Difference], path: str) -> FileState | None:
        if path in start:
            return start[path].after
        return self.differing[path].before if path in self.differing else self.touched[path]


def undone_work(history: PlanHistory, plan_id: str, checkpoint: int) -> UndoneWork:
    """Return the work of the call number `checkpoint` and of all later calls."""
    since = [call for call in history.calls(plan_id) if call.number >= checkpoint]
    later = {call.changeset_id for call in since}
    taken_in = {
        call.changeset_id for call in since if call.tool == REREAD and call.state is not CallState.REVERTED
    }
    changes = history.changes(plan_id)
    by_hand = states_after(change.entry for change in changes if change.changeset_id in taken_in)
    touched: dict[str, FileState | None] = {}
    for change in changes:
        if change.changeset_id in later - taken_in:
            for path, before, _ in split_renames(change.entry):
                touched.setdefault(path, before)
    lost = tuple(sorted(path for path in by_hand if _is_in_the_way(path, touched)))
    return UndoneWork(
        edits={path: state for path, state in by_hand.items() if path not in lost},
        lost=lost,
        touched=touched,
        differing=differences_of(change.entry for change in changes if change.changeset_id not in later),
    )


def _is_in_the_way(path: str, touched: Mapping[str, FileState | None]) -> bool:
    """Return whether `touched` contains the path, a parent directory of it, or a file below it."""
    own = PurePosixPath(path)
    return any(
        path == other or PurePosixPath(other) in own.parents or own in PurePosixPath(other).parents
        for other in touched
    )
