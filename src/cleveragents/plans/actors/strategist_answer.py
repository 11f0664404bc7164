"""What a strategist answered, as far as it makes sense: models miscount, and say more than was asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from cleveragents.core.decision import Alternative, NewDecision
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_content
from cleveragents.plans.model.strategy import Strategy, Task

__all__ = ["StepTerms", "decisions_in", "tasks_in", "unread_in"]

_STEP = ("title", "instructions", "needs", "decisions", "sub_plan")


def decisions_in(
    said: JsonValue, actor: str, *, first: int, held: Collection[int], parent: int | None
) -> list[NewDecision]:
    """The decisions, which will be numbered from `first` on. Each follows from one that holds, or from one
    before it, as it says; else the first of them follows from `parent`, and the others from the first."""
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
class StepTerms:
    """`kept` tasks stay, by their numbers; `decisions` are those that a step may name, `sub_plans` is how
    many steps may be such. `otherwise` is the task where no step is said and none is kept."""

    kept: Mapping[int, Task]
    round: int
    decisions: frozenset[int]
    sub_plans: int
    otherwise: Task


def tasks_in(said: JsonValue, terms: StepTerms) -> tuple[Task, ...]:
    """All tasks: those that stay, and the steps in the order in which they are done, in the places that are
    free. Where there are fewer steps than free places, what stays moves up, and its run keeps its name."""
    # Where something stays, no step means that nothing else is wanted.
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
    """The task under its new number. What stays does not wait for what is new."""
    needs = tuple(numbers[need] for need in task.needs if old not in kept or need in kept)
    place = old if task.place is None and numbers[old] != old else task.place
    return replace(task, needs=needs, place=place)


def unread_in(said: JsonValue) -> list[str]:
    """The keys of steps that mean nothing here, sorted: `decision` may have been meant for `decisions`."""
    return sorted({str(key) for entry in _objects(said) for key in entry if key not in _STEP})


def _steps(said: JsonValue, terms: StepTerms) -> tuple[Task, ...]:
    entries = _objects(said)
    return tuple(
        Task(
            # On one line: what followed a line break would look like our own words where it is shown.
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
    """What a model said, without keys; its words may be about code, which stays as it is."""
    shown = redact_content(said)
    many = shown if isinstance(shown, Sequence) and not isinstance(shown, str) else ()
    return [entry for entry in many if isinstance(entry, Mapping)]


def _numbers(said: Any) -> list[int]:
    many = said if isinstance(said, Sequence) and not isinstance(said, str) else ()
    return list(dict.fromkeys(one for one in many if isinstance(one, int) and not isinstance(one, bool)))
