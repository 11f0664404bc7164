"""What a strategist is told beside its goal: what was decided and done before, and how to cut the work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cleveragents.core.decision import Decision, DecisionState
from cleveragents.plans.model.correction import Correction
from cleveragents.plans.model.strategy import Task
from cleveragents.tools.tool_answers import cut

__all__ = ["Past", "words_for"]

_TOLD = 4_000
_LINE = 400


@dataclass(frozen=True, slots=True)
class Past:
    """What a plan that is thought through again has behind it: all its decisions, the corrections that sent
    it back, the tasks that stay, by their numbers, and those that are to be thought of anew."""

    decisions: Sequence[Decision]
    corrections: Sequence[Correction]
    kept: Mapping[int, Task]
    dropped: Sequence[Task]


def words_for(past: Past, sub_plans: int) -> str:
    """All of it, in words; `sub_plans` is how many steps may be sub-plans."""
    parts = [*_told_about(past)] if past.corrections else []
    return "\n\n".join([*parts, _about_sub_plans(sub_plans)])


def _told_about(past: Past) -> list[str]:
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
        parts.append(f"Done or under way, and it stays. Plan no step for it:\n{_listed(past.kept.values())}")
    if past.dropped:
        parts.append(
            f"Planned before, not done or undone. Plan it anew if it is wanted:\n{_listed(past.dropped)}"
        )
    return parts


def _wrong(past: Past, correction: Correction) -> str:
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
