"""Strategize by an actor: it reads, decides, and says what is to be done. Nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cleveragents.application.ports.clock import Clock
from cleveragents.application.ports.decisions import DecisionStore
from cleveragents.application.services.actor_stage import ActorGround, OpenStage
from cleveragents.application.services.actor_turn import ActorTurn
from cleveragents.domain.decision import Alternative, NewDecision
from cleveragents.domain.json_value import JsonValue
from cleveragents.domain.redaction import redact_content, redact_text
from cleveragents.domain.strategy import Strategy, Task

__all__ = ["Strategizing"]


@dataclass(frozen=True, slots=True)
class Strategizing:
    """The first phase. Stateless but for its parts: any number of plans may be at it at once."""

    open_stage: OpenStage
    turn: ActorTurn
    decisions: DecisionStore
    clock: Clock
    say: Callable[[str], None]

    def __call__(self, ground: ActorGround) -> Strategy:
        """The strategy with its tasks; the decisions that led to them are kept. Changes nothing."""
        plan, actor = ground.plan, ground.casting.strategize
        whole = (Task(plan.goal, plan.goal),)
        if actor is None:
            return replace(ground.strategy, tasks=whole)
        with self.open_stage(ground) as stage:
            values = self.turn.run(ground, stage, actor, "strategize", reads=True)
        made = _decisions(values.get("decisions"), actor)
        if made:
            self.decisions.add(plan.id, made, key="strategize", now=self.clock.now())
        tasks = _tasks(values.get("steps")) or whole
        self._show(made, tasks)
        return replace(ground.strategy, tasks=tasks)

    def _show(self, made: Sequence[NewDecision], tasks: Sequence[Task]) -> None:
        for decision in made:
            self.say(redact_text(f"decided: {decision.question} {decision.choice}"))
        for number, task in enumerate(tasks, start=1):
            self.say(redact_text(f"planned: {number}. {task.name}"))


def _decisions(kept: JsonValue, actor: str) -> list[NewDecision]:
    """The first is what was decided about the goal; the others follow from it, unless they say otherwise."""
    made = []
    for number, entry in enumerate(_objects(kept), start=1):
        parent = entry.get("parent")
        sound = isinstance(parent, int) and 0 < parent < number
        confidence = entry.get("confidence")
        made.append(
            NewDecision(
                question=str(entry.get("question") or ""),
                choice=str(entry.get("choice") or ""),
                rationale=str(entry.get("rationale") or ""),
                alternatives=tuple(
                    Alternative(str(other.get("choice") or ""), str(other.get("reason") or ""))
                    for other in _objects(entry.get("alternatives"))
                ),
                confidence=min(1.0, max(0.0, float(confidence)))
                if isinstance(confidence, int | float)
                else None,
                parent=parent if sound else (1 if number > 1 else None),
                made_by=actor,
            )
        )
    return made


def _tasks(kept: JsonValue) -> tuple[Task, ...]:
    entries = _objects(kept)
    return tuple(
        Task(
            name=str(entry.get("title") or f"step {number}"),
            instructions=str(entry.get("instructions") or ""),
            needs=tuple(
                need
                for need in entry.get("needs") or ()
                if isinstance(need, int) and 0 < need <= len(entries) and need != number
            ),
        )
        for number, entry in enumerate(entries, start=1)
    )


def _objects(kept: JsonValue) -> list[Mapping[str, Any]]:
    """What a model said, without keys; its words may be about code, which stays as it is."""
    shown = redact_content(kept)
    many = shown if isinstance(shown, Sequence) and not isinstance(shown, str) else ()
    return [entry for entry in many if isinstance(entry, Mapping)]
