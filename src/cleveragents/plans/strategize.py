"""Strategize by an actor: it reads, decides, and says what is to be done. Nothing is changed.

A plan that was corrected is strategized again. Each such round is a run of its own, named by its number. That
is found by counting corrections, so whoever takes a round up after a crash is in the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cleveragents.core.clock import Clock
from cleveragents.core.decision import Decision, DecisionState
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_text
from cleveragents.core.tool import ToolCall
from cleveragents.plans.actors.actor_stage import ActorGround, OpenStage
from cleveragents.plans.actors.actor_turn import ActorTurn
from cleveragents.plans.actors.strategist_answer import StepTerms, decisions_in, tasks_in, unread_in
from cleveragents.plans.actors.strategist_words import Past, words_for
from cleveragents.plans.model.correction import Correction
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy, Task
from cleveragents.plans.model.sub_plan import goes_on
from cleveragents.plans.model.undoing import carrying_out, kept_tasks
from cleveragents.plans.ports.corrections import CorrectionStore
from cleveragents.plans.ports.decisions import DecisionStore
from cleveragents.plans.ports.plans import PlanStore, TreeLimits

__all__ = ["Strategizing"]

_UNREAD = 200
_STRATEGIZE = "strategize"


@dataclass(frozen=True, slots=True)
class Strategizing:
    """The first phase. Stateless but for its parts: any number of plans may be at it at once."""

    open_stage: OpenStage
    turn: ActorTurn
    decisions: DecisionStore
    corrections: CorrectionStore
    plans: PlanStore
    calls_of: Callable[[ActorGround], Sequence[ToolCall]]
    limits: TreeLimits
    clock: Clock
    say: Callable[[str], None]

    def __call__(self, ground: ActorGround) -> Strategy:
        """The strategy with its tasks; the decisions that led to them are kept. Changes nothing."""
        plan, actor = ground.plan, ground.casting.strategize
        corrections = self.corrections.of_plan(plan.id)
        back = [one for one in corrections if one.made.decision is not None or one.made.by_itself]
        strategy = replace(
            ground.strategy,
            round=len(back),
            returns=sum(one.made.by_itself for one in back),
            guidance=self._heeded(plan, corrections),
        )
        whole = Task(plan.goal, plan.goal, round=strategy.round)
        if actor is None:
            # Whatever was taken back is done again under a name of its own.
            return replace(strategy, tasks=strategy.tasks or (replace(whole, round=0),))
        part = f"{_STRATEGIZE}~{strategy.round}" if strategy.round else _STRATEGIZE
        past, room = self._past(ground, back, part), self._room(plan)
        ground = replace(ground, strategy=strategy)
        with self.open_stage(ground) as stage:
            values = self.turn.run(
                ground, stage, actor, part, task=words_for(past, room), reads=True, about=_about(plan, back)
            )
        kept = self._decided(plan, values.get("decisions"), part, past, actor)
        known = frozenset(one.number for one in (*past.decisions, *kept) if one.state is DecisionState.ACTIVE)
        terms = StepTerms(past.kept, strategy.round, known, room, whole)
        tasks = tasks_in(values.get("steps"), terms)
        self._show(kept, tasks, strategy.round)
        if unread := unread_in(values.get("steps")):
            self.say(redact_text(f"not known in a step, and ignored: {', '.join(unread)[:_UNREAD]}"))
        return replace(strategy, tasks=tasks)

    def _heeded(self, plan: Plan, corrections: Sequence[Correction]) -> tuple[str, ...]:
        """What people said, here and in the plans that this one is a part of, the oldest first."""
        own = tuple(one.made.guidance for one in corrections if not one.made.by_itself)
        if plan.parent_id is None:
            return own
        parent = self.plans.get(plan.parent_id)
        return (*self._heeded(parent, self.corrections.of_plan(parent.id)), *own)

    def _past(self, ground: ActorGround, back: Sequence[Correction], part: str) -> Past:
        plan = ground.plan
        if not back:
            return Past((), (), {}, ())
        # Those of this very round are not its past, if it was cut off after it had kept them.
        own = {one.number for one in self.decisions.add(plan.id, (), key=part, now=self.clock.now())}
        decisions = [one for one in self.decisions.of_plan(plan.id) if one.number not in own]
        strategy = Strategy(()) if plan.strategy is None else Strategy.from_json(plan.strategy)
        before = strategy.tasks
        kept = kept_tasks(before, self.calls_of(ground), self._going_on(plan, strategy, decisions, back))
        dropped = [task for number, task in enumerate(before, start=1) if number not in kept]
        return Past(decisions, back, kept, dropped)

    def _going_on(
        self, plan: Plan, strategy: Strategy, decisions: Sequence[Decision], back: Sequence[Correction]
    ) -> frozenset[str]:
        """The parts whose sub-plans are taken in though their plan was corrected since. What was built on
        work that was taken back was cancelled with it."""
        since = back[strategy.round :]
        if any(one.made.by_itself for one in since):
            return frozenset()
        gone = {number for one in since for number in one.made.superseded}
        carrying = carrying_out(strategy, [one for one in decisions if one.number in gone])
        return frozenset(str(c.key) for c in self.plans.children(plan.id) if goes_on(c)) - carrying

    def _room(self, plan: Plan) -> int:
        """How many sub-plans it may still have."""
        if plan.depth >= self.limits.depth:  # guard: what is too deep is not even asked for
            return 0
        return max(0, self.limits.fan_out - len(self.plans.children(plan.id)))

    def _decided(self, plan: Plan, said: JsonValue, part: str, past: Past, actor: str) -> Sequence[Decision]:
        held = [one.number for one in past.decisions if one.state is DecisionState.ACTIVE]
        above = _above(past, held)
        made = decisions_in(said, actor, first=len(past.decisions) + 1, held=held, parent=above)
        return self.decisions.add(plan.id, made, key=part, now=self.clock.now()) if made else ()

    def _show(self, kept: Sequence[Decision], tasks: Sequence[Task], this_round: int) -> None:
        for decision in kept:
            words = f"{decision.made.question} {decision.made.choice}".split()
            self.say(redact_text(f"decided: {' '.join(words)}"))
        for number, task in enumerate(tasks, start=1):
            how = "planned" if task.round == this_round else "kept"
            self.say(redact_text(f"{how}: {number}. {task.name}"))


def _about(plan: Plan, back: Sequence[Correction]) -> str:
    """What the strategist has to know about: the goal, and what it was told since."""
    return "\n\n".join([plan.goal, *(one.made.guidance for one in back)])


def _above(past: Past, held: Sequence[int]) -> int | None:
    """What the decision that was corrected last followed from, if that still holds."""
    corrected = past.corrections[-1].made.decision if past.corrections else None
    parents = [one.made.parent for one in past.decisions if one.number == corrected]
    return next((parent for parent in parents if parent in held), None)
