"""Corrects plans: supersedes what was decided wrongly, takes back what was done for it, and thinks again.

The order makes every crash harmless. First the plan is stopped; then its sandbox goes back to the checkpoint,
after which it is still a plan of its old decisions that does its last tasks again; then, in one step, these
decisions no longer hold and the plan waits in Strategize; then it is queued. So it can be corrected again or
resumed wherever it was left, and never goes on with what was superseded.

What goes with the calls that a correction takes back, and what does not: edits of a person, and sub-plans.

A person's edits that were taken in are calls like others, so a rollback takes them back. Those of files that
nothing else touched belong to no decision, and are brought over. A sub-plan that carries out no superseded
decision goes on, unless it began with files that are taken back: it would build on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from cleveragents.core.change import Difference, FileState, differences_of, split_renames, states_after
from cleveragents.core.clock import Clock
from cleveragents.core.decision import Decision, DecisionState
from cleveragents.core.errors import PlanError, Remedy, SandboxMissing, UnknownDecision
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import Fence
from cleveragents.core.text.redaction import redact_content_text, redact_text
from cleveragents.core.tool import CallState
from cleveragents.plans.calls.tool_execution import ToolExecution
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
from cleveragents.plans.model.strategy import Strategy, Task
from cleveragents.plans.model.sub_plan import can_continue, is_merged
from cleveragents.plans.pause import PlanPause, waiting_for_correction, waiting_in
from cleveragents.plans.ports.decisions import DecisionStore
from cleveragents.plans.ports.plans import PlanFacts
from cleveragents.plans.queue import going_on_with
from cleveragents.plans.sandbox_edits import SandboxEdits
from cleveragents.plans.store.sql_decision_store import SqlCorrectionStore
from cleveragents.storage.idempotency import IdempotencyClaim

__all__ = ["CorrectionEffects", "PlanCorrection", "UndoneWork", "undone_work"]


_NAME = 60


@dataclass(frozen=True, slots=True)
class CorrectionEffects:
    """What a correction would supersede and take back: the decisions, the calls from `checkpoint` on (None:
    nothing was done for them yet), the tasks they were made for and the files that change. Of what a person
    edited since, `edits_lost` are the files that go with it, and `edits_kept` those that stay as they are; of
    the sub-plans whose results are not in, `sub_plans` are cancelled, and `sub_plans_kept` go on."""

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


@dataclass(frozen=True, slots=True)
class _Asked:
    """With which model the plan is to go on, if another is named; and for which request."""

    model: str | None
    claim: IdempotencyClaim | None


@dataclass(frozen=True, slots=True)
class PlanCorrection:
    """Stateless but for its stores: any thread and any process may correct a plan; one correction wins."""

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
        """What correcting that decision would supersede and undo, as the plan stands. Changes nothing.
        `PlanError` when it has no such decision, or one that does not hold any more."""
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
        """Supersedes the decision and all that followed from it, takes back what was done for them, and
        queues the plan to be thought through again with that guidance. A running plan is stopped first.

        `PlanError` for a plan that has ended or decided nothing of the kind; `NeedsHuman` when files in its
        sandbox were edited by hand and not taken in; what `PlanPause.pause` raises; `StalePlan` when
        somebody else decided about it at the same time; `RequestUnderWay` when somebody took over the
        claim to the request that it is made for.
        """
        words = _sound(plan, guidance)
        self.ensure_correctable(plan)
        self.preview(plan, number)  # what cannot be done is said before anything is stopped
        plan = self._paused(plan)
        undoing = self.preview(plan, number)
        gone = [self.sandbox_edits.plans.get(child) for child in undoing.sub_plans]
        self.pausing.end_sub_plans(plan, gone)
        outcome = self._outcome(plan)
        self.sandbox_edits.ensure_taken_in(plan)  # guard: a run brings the sandbox to what is recorded
        if undoing.checkpoint is not None:
            work = undone_work(self.history, plan.id, undoing.checkpoint)
            self.sandbox_edits.rollback(plan, undoing.checkpoint)
            self.sandbox_edits.bring_over(
                plan, work.edits
            )  # guard: a person's own work belongs to no decision
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
        """Adds guidance and undoes nothing: every later run of an actor is given it, and a plan that was
        thought through already gets one more task. Queues the plan to go on. Errors as `correct`."""
        words = _sound(plan, guidance)
        self.ensure_correctable(plan)
        plan = self._paused(plan)
        self.sandbox_edits.ensure_taken_in(plan)  # guard: a run brings the sandbox to what is recorded
        made = NewCorrection(guidance=words, outcome=self._outcome(plan))
        if plan.phase is Phase.STRATEGIZE:
            return self._kept(plan, made, Phase.STRATEGIZE, _Asked(model, claim))
        if plan.state is PlanState.ERRORED:
            with suppress(SandboxMissing):
                self.sandbox_edits.take_back_failure(plan)
        strategy = Strategy.from_json(plan.strategy)
        task = Task(_name_of(words), words, round=strategy.round)
        strategy = replace(strategy, tasks=(*strategy.tasks, task), guidance=(*strategy.guidance, words))
        return self._kept(plan, made, Phase.EXECUTE, _Asked(model, claim), strategy)

    def gone_on_with(self, plan: Plan, model: str | None = None) -> Plan:
        """The plan after a correction that was kept: queued with that model, if whoever made the correction
        was killed before they could do that."""
        # By its kind: an earlier version said the rest in other words.
        waiting = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        if plan.state is not PlanState.WAITING or waiting.get("for") != "correction":
            return plan
        return self.pausing.lifecycle.queueing.queued(plan, going_on_with(model))

    def think_again(self, plan: Plan, findings: str, execution: ToolExecution, fence: Fence) -> Plan | None:
        """For the run that works on the plan, whose result shows that it was decided wrongly: all that its
        tasks did is taken back, no decision holds any more, and the plan is at `strategize/queued`, where the
        same job goes on with it. None when it has gone back by itself as often as it may, or has nobody who
        would think: then nothing was changed.

        `StalePlan`, `StaleFence` when it is not this run's any more.
        """
        strategy = Strategy.from_json(plan.strategy)
        returns = sum(one.made.by_itself for one in self.corrections.of_plan(plan.id))
        if returns >= MOST_RETURNS:  # guard: a plan does not think for ever
            return None
        if strategy.casting is None or strategy.casting.strategize is None:
            return None
        held = [d for d in self.decisions.of_plan(plan.id) if d.state is DecisionState.ACTIVE]
        checkpoint = checkpoint_for(strategy, self.history.calls(plan.id), ())
        made = NewCorrection(
            # A reviewer's words quote code, in which `password = load()` is no secret.
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

    def ensure_correctable(self, plan: Plan) -> None:
        """`PlanError`, with what can be done instead, for a plan that nothing can be corrected in."""
        anew = "start a new one, with what you know now"
        if plan.state.ended:
            raise PlanError(plan.id, f"it is {plan.state.value}, which is final; {anew}")
        if plan.phase is Phase.APPLY and plan.state is PlanState.ERRORED:
            again = Remedy("plan.apply", plan.id, text="Apply it again")
            reject = Remedy("plan.reject", plan.id, text="Discard it")
            raise PlanError(plan.id, "it failed while it was applied", (again, reject))
        if plan.strategy is not None and Strategy.from_json(plan.strategy).casting is None:
            raise PlanError(plan.id, f"it does plain steps, so nobody decided anything in it; {anew}")
        if plan.parent_id is not None and self._is_merged(plan):
            tree = Remedy("plan.tree", plan.parent_id, text="Correct that plan; list its decisions")
            raise PlanError(plan.id, f"its result is part of plan {plan.parent_id} already", (tree,))

    def _is_merged(self, plan: Plan) -> bool:
        calls = self.history.calls(str(plan.parent_id))
        return any(call.step == f"{MERGE}{plan.key}" and call.state is CallState.ENDED for call in calls)

    def _holding(self, plan: Plan, every: Sequence[Decision], number: int) -> Decision:
        decision = next((one for one in every if one.number == number), None)
        if decision is None:
            raise UnknownDecision(plan.id, number, len(every))
        if decision.state is not DecisionState.ACTIVE:
            by = next((c for c in self.corrections.of_plan(plan.id) if number in c.made.superseded), None)
            how = (
                "was taken back by a rollback"
                if by is None
                else f"was superseded already by correction {by.number}"
            )
            raise PlanError(plan.id, f"decision {number} {how}", (_tree(plan),))
        return decision

    def _parts(
        self, plan: Plan, superseded: Sequence[Decision], checkpoint: int | None, work: UndoneWork
    ) -> tuple[list[Plan], list[Plan]]:
        """Of the sub-plans whose results are not in, or not any more, those that go on and those that end."""
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
        """Whether the sub-plan began with something of it."""
        start = child.request.get("start")
        if not work.touched or not isinstance(start, Mapping):
            return False
        return work.is_in(self.sandbox_edits.sandboxes.open(plan.id).changes_of(str(start["tree"])))

    def _paused(self, plan: Plan) -> Plan:
        plan = self.pausing.pause(plan, sub_plans=False)
        self.faults.reach("correct.paused")
        self.ensure_correctable(plan)  # it may have ended before it could be stopped
        return plan

    def _outcome(self, plan: Plan) -> str | None:
        """The name of the tree that the plan has come to."""
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
            plan, made, waiting_in(phase), facts, now=self.clock.now(), claim=asked.claim
        )
        self.faults.reach("correct.kept")
        for child in gone:  # those that were done; the others are cancelled already
            with suppress(PlanError):
                self.pausing.lifecycle.cancel(child, f"plan {plan.id}, of which it is a part, is corrected")
        return kept, self.pausing.lifecycle.queue(moved, going_on_with(asked.model))


def _strategy_of(plan: Plan) -> Strategy:
    """What it works by; while it is still thought of, nothing."""
    return Strategy(()) if plan.strategy is None else Strategy.from_json(plan.strategy)


def _sound(plan: Plan, guidance: str) -> str:
    # As a goal: what a person says is for models and people to read, and no code that has to stay as it is.
    words = redact_text(guidance.strip())
    if not words:
        raise PlanError(plan.id, "the guidance is empty; say what should have been decided, and why")
    return words


def _name_of(guidance: str) -> str:
    first = " ".join(guidance.split())
    return first if len(first) <= _NAME else f"{first[: _NAME - 1]}…"


def _tree(plan: Plan) -> Remedy:
    return Remedy("plan.tree", plan.id, text="List its decisions")


@dataclass(frozen=True, slots=True)
class UndoneWork:
    """`edits` are the states of the files that only a person has touched since the checkpoint, `lost` the
    files that a person has touched and others, too. `touched` is how each file that others have touched was
    at the checkpoint, `differing` all that differed from the base then."""

    edits: Mapping[str, FileState | None] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    touched: Mapping[str, FileState | None] = field(default_factory=dict)
    differing: Mapping[str, Difference] = field(default_factory=dict)

    def is_in(self, start: Mapping[str, Difference]) -> bool:
        """Whether something of it is in a tree that differs so from the same base."""
        return any(self._in(start, path) != state for path, state in self.touched.items())

    def _in(self, start: Mapping[str, Difference], path: str) -> FileState | None:
        if path in start:
            return start[path].after
        return self.differing[path].before if path in self.differing else self.touched[path]


def undone_work(history: PlanHistory, plan_id: str, checkpoint: int) -> UndoneWork:
    """What was done from that call on."""
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
    """Whether others have touched the file, or what is a directory where it lies, or lies below it."""
    own = PurePosixPath(path)
    return any(
        path == other or PurePosixPath(other) in own.parents or own in PurePosixPath(other).parents
        for other in touched
    )
