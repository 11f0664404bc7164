"""Who watches a plan while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cleveragents.actors.model.actor import Progress
from cleveragents.plans.model.plan import Plan

__all__ = ["PlanWatch", "WatchOf"]


@dataclass(frozen=True, slots=True)
class PlanWatch:
    """What hears of one plan: a line for people, what its commands print, what its actors are at. Called by
    the threads that run the plan; those of other plans run beside them."""

    progress: Callable[[str], None] | None = None
    on_output: Callable[[bytes], None] | None = None
    told: Callable[[Progress], None] | None = None


WatchOf = Callable[[Plan], PlanWatch]
"""Who watches that plan: asked whenever there is something to tell, and so quick to answer."""
