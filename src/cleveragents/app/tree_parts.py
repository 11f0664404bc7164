"""Joins what plans that branch need: their way through queues, their sub-plans, and their corrections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleveragents.app.scope import later

if TYPE_CHECKING:
    from cleveragents.app.plan_foundations import Foundations
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.plans.corrections.correct import PlanCorrection
    from cleveragents.plans.jobs.names import PlanLanes
    from cleveragents.plans.lifecycle import PlanLifecycle
    from cleveragents.plans.sub_plans.loop import SubPlans

__all__ = ["correction_for", "lanes_for", "lifecycle_for", "sub_plans_for"]


def lifecycle_for(container: Foundations, parts: PlanParts) -> PlanLifecycle:
    """What a person does with plans."""
    from cleveragents.plans.lifecycle import PlanLifecycle

    return PlanLifecycle(
        parts.plans,
        parts.calls,
        container.jobs,
        container.processes,
        later(lambda: parts.rewriting),
        container.clock,
        container.settings.worker.cancel_grace_seconds,
        container.settings.plan.max_parallel,
        lanes_for(container),
    )


def lanes_for(container: Foundations) -> PlanLanes:
    """The limits of shared queues, as settings and projects say today."""
    from cleveragents.core.errors import UnknownProject
    from cleveragents.plans.jobs.names import PlanLanes

    def project_limit(name: str) -> int | None:
        try:
            return container.projects.get(name).max_parallel
        except UnknownProject:
            return None  # it was removed; its plans go on

    settings = container.settings
    return PlanLanes(
        project_limit, settings.jobs.provider_limit, settings.models.default, settings.jobs.queue_bound
    )


def sub_plans_for(container: Foundations, parts: PlanParts) -> SubPlans:
    """A parent's way through its tasks."""
    from cleveragents.plans.ports.plans import TreeLimits
    from cleveragents.plans.sub_plans.loop import SubPlans
    from cleveragents.plans.sub_plans.spawn import SubPlanSpawn

    settings, faults = container.settings.plan, container.faults
    limits = TreeLimits(settings.max_depth, settings.max_fan_out)
    lifecycle = parts.lifecycle
    spawning = SubPlanSpawn(parts.plans, lifecycle, limits, container.clock, faults)
    return SubPlans(parts.plans, lifecycle, spawning, parts.merging, faults)


def correction_for(container: Foundations, parts: PlanParts) -> PlanCorrection:
    """Takes back what was decided wrongly."""
    from cleveragents.plans.corrections.correct import PlanCorrection
    from cleveragents.plans.pausing import PlanPausing

    grace = container.settings.worker.cancel_grace_seconds
    pausing = PlanPausing(
        parts.plans, container.jobs, container.processes, parts.lifecycle, container.clock, grace
    )
    kept = parts.thinking.decisions, parts.thinking.corrections
    return PlanCorrection(*kept, parts.rewriting, pausing, container.clock, container.faults)
