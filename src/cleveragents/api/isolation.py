"""The isolation of commands as views show it: of one plan, and of all that workers run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.api.workers import worker_state
from cleveragents.core.isolation import Isolation

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.model.plan import Plan

__all__ = ["isolation_in_words", "isolation_of", "unisolated_workers"]

_OVER = ("lost", "gone")
_WORDS = {
    Isolation.NONE.value: "none: its commands can read and change whatever the user who runs them can",
}


def isolation_of(parts: PlanParts, plan: Plan) -> str | None:
    """The isolation of the plan's commands: the weakest of its runs; before the first, that of this process.
    None for a plan of a version that did not record it."""
    if plan.isolation is not None:
        return plan.isolation.value
    return parts.isolation.value if plan.strategy is None and not plan.state.ended else None


def isolation_in_words(isolation: str | None) -> str | None:
    """The isolation, and what its lack means."""
    return None if isolation is None else _WORDS.get(isolation, isolation)


def unisolated_workers(container: Container) -> list[str]:
    """The names of workers that run commands without isolation now."""
    now = container.clock.now()
    return [
        worker.name
        for worker in container.worker_registry.list()
        if worker.isolation == Isolation.NONE.value
        and worker_state(worker, now=now, home=container.home) not in _OVER
    ]
