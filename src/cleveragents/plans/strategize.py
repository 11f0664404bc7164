"""The Strategize phase with an actor: it reads, decides and plans the steps. Changes no files.

A corrected plan goes through Strategize again. Each round is a separate run of the actor, named by its
number. The number counts the corrections, so after a crash the same round continues.

Answers are parsed leniently, because models miscount, and add keys that were not requested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from msgspec.structs import replace

from cleveragents.core.clock import Clock
from cleveragents.core.decision import Alternative, Decision, DecisionState, NewDecision
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_content, redact_text
from cleveragents.core.tool import ToolCall
from cleveragents.plans.actors.actor_stage import ActorPhase, ActorTurn, OpenStage
from cleveragents.plans.model.correction import Correction, carrying_out, kept_tasks
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy, Task
from cleveragents.plans.model.sub_plan import can_continue
from cleveragents.plans.ports.decisions import DecisionStore
from cleveragents.plans.ports.plans import TreeLimits
from cleveragents.plans.store.sql_decision_store import SqlCorrectionStore
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.tools.tool_results import cut

__all__ = [
    "PlanningHistory",
    "StepOptions",
    "StrategizePhase",
    "decisions_in",
    "tasks_in",
    "unread_in",
    "words_for",
]


_UNREAD = 200
_STRATEGIZE = "strategize"

_STEP = ("title", "instructions", "needs", "decisions", "sub_plan")

_TOLD = 4_000
_LINE = 400


@dataclass(frozen=True, slots=True)
class StrategizePhase:
    """The first phase of a plan. Stateless: any number of plans may run at the same time."""

    open_stage: OpenStage
    turn: ActorTurn
    decisions: DecisionStore
    corrections: SqlCorrectionStore
    plans: SqlPlanStore
    calls_of: Callable[[ActorPhase], Sequence[ToolCall]]
    limits: TreeLimits
    clock: Clock
    say: Callable[[str], None]

    def __call__(self, ground: ActorPhase) -> Strategy:
        """Return the strategy with its tasks, and record the decisions that led to them. Changes no files."""
        plan, actor = ground.plan, ground.casting.strategize
        corrections = self.corrections.of_plan(plan.id)
        back = [one for one in corrections if one.made.decision is not None or one.made.by_itself]
        strategy = replace(
            ground.strategy,
            round=len(back),
            returns=sum(one.made.by_itself for one in back),
            guidance=self._heeded(plan, corrections),
            ready=None,
            restored=None,
        )
        whole = Task(plan.goal, plan.goal, round=strategy.round)
        if actor is None:
            # Reverted work is done again under a new name.
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
        terms = StepOptions(past.kept, strategy.round, known, room, whole)
        tasks = tasks_in(values.get("steps"), terms)
        self._show(kept, tasks, strategy.round)
        if unread := unread_in(values.get("steps")):
            self.say(redact_text(f"unknown keys in a step, ignored: {', '.join(unread)[:_UNREAD]}"))
        return replace(strategy, tasks=tasks)

    def _heeded(self, plan: Plan, corrections: Sequence[Correction]) -> tuple[str, ...]:
        """Return the guidance that people gave for this plan and its parents, oldest first."""
        withdrawn = () if plan.strategy is None else Strategy.from_json(plan.strategy).withdrawn
        own = tuple(
            one.made.guidance for one in corrections if not one.made.by_itself and one.number not in withdrawn
        )
        if plan.parent_id is None:
            return own
        parent = self.plans.get(plan.parent_id)
        return (*self._heeded(parent, self.corrections.of_plan(parent.id)), *own)

    def _past(self, ground: ActorPhase, back: Sequence[Correction], part: str) -> PlanningHistory:
        plan = ground.plan
        if not back:
            return PlanningHistory((), (), {}, ())
        # After an interruption this round may have recorded decisions already; they are not its past.
        own = {one.number for one in self.decisions.add(plan.id, (), key=part, now=self.clock.now())}
        decisions = [one for one in self.decisions.of_plan(plan.id) if one.number not in own]
        strategy = Strategy(()) if plan.strategy is None else Strategy.from_json(plan.strategy)
        before = strategy.tasks
        kept = kept_tasks(before, self.calls_of(ground), self._going_on(plan, strategy, decisions, back))
        dropped = [task for number, task in enumerate(before, start=1) if number not in kept]
        return PlanningHistory(decisions, back, kept, dropped)

    def _going_on(
        self, plan: Plan, strategy: Strategy, decisions: Sequence[Decision], back: Sequence[Correction]
    ) -> frozenset[str]:
        """Return the parts whose sub-plans continue although their plan was corrected. Sub-plans built on
        reverted work were cancelled.
        """
        since = back[strategy.round :]
        if any(one.made.by_itself for one in since):
            return frozenset()
        gone = {number for one in since for number in one.made.superseded}
        carrying = carrying_out(strategy, [one for one in decisions if one.number in gone])
        return frozenset(str(c.key) for c in self.plans.children(plan.id) if can_continue(c)) - carrying

    def _room(self, plan: Plan) -> int:
        """Return the number of sub-plans that the plan may still create."""
        if plan.depth >= self.limits.depth:  # guard: a strategist is not offered sub-plans that are too deep
            return 0
        return max(0, self.limits.fan_out - len(self.plans.children(plan.id)))

    def _decided(
        self, plan: Plan, said: JsonValue, part: str, past: PlanningHistory, actor: str
    ) -> Sequence[Decision]:
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
    """Return the question for the context search: the goal and later guidance."""
    return "\n\n".join([plan.goal, *(one.made.guidance for one in back)])


def _above(past: PlanningHistory, held: Sequence[int]) -> int | None:
    """Return the parent of the last corrected decision; None if that parent is superseded, too."""
    corrected = past.corrections[-1].made.decision if past.corrections else None
    parents = [one.made.parent for one in past.decisions if one.number == corrected]
    return next((parent for parent in parents if parent in held), None)


def decisions_in(
    said: JsonValue, actor: str, *, first: int, held: Collection[int], parent: int | None
) -> list[NewDecision]:
    """Return the decisions of an answer, numbered from `first`.

    A decision may name a parent, which must be in `held` or come before it in the answer. Otherwise the
    parent of the first decision is `parent`, and the parent of every other decision is the first decision.
    """
    made = []
    for number, entry in enumerate(_objects(said), start=first):
        (named,) = _numbers([entry.get("parent")]) or (0,)
        sound = named in held or first <= named < number
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
                parent=named if sound else (first if number > first else parent),
                made_by=actor,
            )
        )
    return made


@dataclass(frozen=True, slots=True)
class StepOptions:
    """Options for new steps. `kept` are the tasks that stay, by number; `decisions` are the numbers of the
    decisions that a step may name; `sub_plans` limits how many steps may be sub-plans. `otherwise` is the
    only task if there are no steps and no kept tasks.
    """

    kept: Mapping[int, Task]
    round: int
    decisions: frozenset[int]
    sub_plans: int
    otherwise: Task


def tasks_in(said: JsonValue, terms: StepOptions) -> tuple[Task, ...]:
    """Return all tasks. Kept tasks keep their numbers, and the new steps get the free numbers, in order. If
    there are fewer steps than free numbers, kept tasks move up, but their runs keep their names.
    """
    # If tasks are kept, no steps means that no other work is needed.
    steps = _steps(said, terms) or (() if terms.kept else (terms.otherwise,))
    ordered = Strategy((), tasks=steps).ordered_tasks
    free = (number for number in count(1) if number not in terms.kept)
    place = {number: next(free) for number, _ in ordered}
    left = terms.sub_plans
    tasks = dict(terms.kept)
    for number, task in ordered:
        is_sub_plan = task.sub_plan and left > 0
        left -= is_sub_plan
        needs = tuple(place[need] for need in task.needs)
        tasks[place[number]] = replace(task, needs=needs, sub_plan=is_sub_plan)
    numbers = {old: new for new, old in enumerate(sorted(tasks), start=1)}
    return tuple(_moved(tasks[old], old, numbers, terms.kept) for old in sorted(tasks))


def _moved(task: Task, old: int, numbers: Mapping[int, int], kept: Mapping[int, Task]) -> Task:
    """Return the task with its dependencies renumbered. A kept task does not depend on a new one."""
    needs = tuple(numbers[need] for need in task.needs if old not in kept or need in kept)
    place = old if task.place is None and numbers[old] != old else task.place
    return replace(task, needs=needs, place=place)


def unread_in(said: JsonValue) -> list[str]:
    """Return the unknown keys of the steps, sorted, such as `decision` instead of `decisions`."""
    return sorted({str(key) for entry in _objects(said) for key in entry if key not in _STEP})


def _steps(said: JsonValue, terms: StepOptions) -> tuple[Task, ...]:
    entries = _objects(said)
    return tuple(
        Task(
            # On one line: text after a line break would look like our own output.
            name=" ".join(str(entry.get("title") or "").split()) or f"step {number}",
            instructions=str(entry.get("instructions") or ""),
            needs=tuple(
                need for need in _numbers(entry.get("needs")) if 0 < need <= len(entries) and need != number
            ),
            sub_plan=entry.get("sub_plan") is True,
            decisions=tuple(one for one in _numbers(entry.get("decisions")) if one in terms.decisions),
            round=terms.round,
        )
        for number, entry in enumerate(entries, start=1)
    )


def _objects(said: JsonValue) -> list[Mapping[str, Any]]:
    """Return the JSON objects in a model's answer with secrets masked; code stays unchanged."""
    shown = redact_content(said)
    many = shown if isinstance(shown, Sequence) and not isinstance(shown, str) else ()
    return [entry for entry in many if isinstance(entry, Mapping)]


def _numbers(said: Any) -> list[int]:
    many = said if isinstance(said, Sequence) and not isinstance(said, str) else ()
    return list(dict.fromkeys(one for one in many if isinstance(one, int) and not isinstance(one, bool)))


@dataclass(frozen=True, slots=True)
class PlanningHistory:
    """The history of a plan that goes through Strategize again: its decisions, its corrections, the tasks
    that stay, by number, and the tasks to plan again.
    """

    decisions: Sequence[Decision]
    corrections: Sequence[Correction]
    kept: Mapping[int, Task]
    dropped: Sequence[Task]


def words_for(past: PlanningHistory, sub_plans: int) -> str:
    """Return the prompt for the strategist; `sub_plans` limits how many steps may be sub-plans."""
    parts = [*_told_about(past)] if past.corrections else []
    return "\n\n".join([*parts, _about_sub_plans(sub_plans)])


def _told_about(past: PlanningHistory) -> list[str]:
    number = len(past.decisions) + 1
    held = [d for d in past.decisions if d.state is DecisionState.ACTIVE]
    parts = ["This was planned before. Some of it was wrong, so you plan it again."]
    if held:
        lines = "\n".join(_decided(decision) for decision in held)
        parts.append(f"Decisions that hold. Do not decide them again:\n{lines}")
    parts += [_wrong(past, correction) for correction in past.corrections]
    parts.append(
        f"Your first decision has the number {number}, the next {number + 1}, and so on."
        + (" `parent` may be one of yours or one that holds." if held else "")
    )
    if past.kept:
        parts.append(f"Done or running, and it stays. Plan no step for it:\n{_listed(past.kept.values())}")
    if past.dropped:
        parts.append(
            f"Planned before, not done or undone. Plan it anew if it is wanted:\n{_listed(past.dropped)}"
        )
    return parts


def _wrong(past: PlanningHistory, correction: Correction) -> str:
    made = correction.made
    gone = [d for d in past.decisions if d.number in made.superseded]
    lines = "\n".join(_decided(decision) for decision in gone)
    who = "The review of the result says" if made.by_itself else "A person says"
    said = f"{who}:\n{cut(made.guidance, _TOLD)}"
    return f"Decisions that do not hold any more:\n{lines}\n{said}" if gone else said


def _decided(decision: Decision) -> str:
    return cut(f"{decision.number}. {decision.made.question} -> {decision.made.choice}", _LINE)


def _listed(tasks: Iterable[Task]) -> str:
    return "\n".join(f"- {cut(task.name, _LINE)}" for task in tasks)


def _about_sub_plans(most: int) -> str:
    if most < 1:
        return "No step may be a sub-plan."
    return (
        f"At most {most} steps may be sub-plans (`sub_plan: true`): large parts that touch different files. "
        "Each is planned and done by itself, at the same time as the others. A small change needs none."
    )
