"""Joins what plans that branch need: their sub-plans, and their corrections."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.application.plan_parts import Foundations, PlanParts
    from cleveragents.application.services.plan_correction import PlanCorrection
    from cleveragents.application.services.sub_plans import SubPlans

__all__ = ["correction_for", "sub_plans_for"]


def sub_plans_for(container: Foundations, parts: PlanParts) -> SubPlans:
    """A parent's way through its tasks."""
    from cleveragents.application.ports.plans import TreeLimits
    from cleveragents.application.services.sub_plan_spawn import SubPlanSpawn
    from cleveragents.application.services.sub_plans import SubPlans

    settings, faults = container.settings.plan, container.faults
    limits = TreeLimits(settings.max_depth, settings.max_fan_out)
    lifecycle = parts.lifecycle
    spawning = SubPlanSpawn(parts.plans, lifecycle, limits, container.clock, faults)
    return SubPlans(parts.plans, lifecycle, spawning, parts.merging, faults)


def correction_for(container: Foundations, parts: PlanParts) -> PlanCorrection:
    """Takes back what was decided wrongly."""
    from cleveragents.application.services.plan_correction import PlanCorrection
    from cleveragents.application.services.plan_pausing import PlanPausing

    grace = container.settings.worker.cancel_grace_seconds
    pausing = PlanPausing(
        parts.plans, container.jobs, container.processes, parts.lifecycle, container.clock, grace
    )
    kept = parts.thinking.decisions, parts.thinking.corrections
    return PlanCorrection(*kept, parts.rewriting, pausing, container.clock, container.faults)
