"""Goals that are reached together: parts of one plan, each a plan of its own, some after others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cleveragents.core.json_value import FrozenObject, JsonValue, freeze, thaw

__all__ = ["GOALS_ACTION", "Goals", "SubGoal", "circle_in"]

GOALS_ACTION = "builtin/goals"
"""The action of a plan whose parts were named by its user."""


@dataclass(frozen=True, slots=True)
class SubGoal:
    """One of them: in words, or an action with its arguments. `needs` are the names of those before it."""

    name: str
    goal: str = ""
    action: str | None = None
    arguments: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    needs: tuple[str, ...] = ()
    actor: str | None = None
    model: str | None = None
    checks: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()

    def to_json(self) -> JsonValue:
        """As the request of the whole keeps it."""
        return freeze(
            {
                "name": self.name,
                "goal": self.goal,
                "action": self.action,
                "arguments": thaw(freeze(self.arguments)),
                "needs": list(self.needs),
                "actor": self.actor,
                "model": self.model,
                "checks": list(self.checks),
                "invariants": list(self.invariants),
            }
        )


@dataclass(frozen=True, slots=True)
class Goals:
    """All of them, what they are for, and what must hold of the merged result."""

    goals: tuple[SubGoal, ...]
    goal: str = ""
    max_parallel: int | None = None
    fail_fast: bool = False
    checks: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What it is for, in the user's words or else by the names of its parts."""
        noun = "goal" if len(self.goals) == 1 else "goals"
        return self.goal or f"{len(self.goals)} {noun}: {', '.join(one.name for one in self.goals)}"


def circle_in(needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Names of which each needs the next, the last one the first again; none, if there is no circle.

    Names that nobody explains need nothing.
    """
    left = {name: [need for need in named if need in needs] for name, named in needs.items()}
    while True:
        ready = [name for name, named in left.items() if not any(need in left for need in named)]
        if not ready:
            break
        for name in ready:
            del left[name]
    if not left:
        return ()
    # Each of those left needs another of them, so whoever follows that comes round.
    walked = [min(left)]
    while walked.count(walked[-1]) == 1:
        walked.append(next(need for need in left[walked[-1]] if need in left))
    return tuple(walked[walked.index(walked[-1]) :])
