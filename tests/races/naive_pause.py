"""A naive pause: the job is cancelled first, and then the plan moves."""

from __future__ import annotations

from contextlib import suppress

from cleveragents.core.errors import JobAlreadyEnded
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.pause import PlanPause

__all__ = ["TellsFirst", "TellsInAnyCase"]


class TellsFirst(PlanPause):
    """A run that is cancelled before the plan moves takes it for a cancel of the plan."""

    def pause(self, plan: Plan, *, sub_plans: bool = True, version: int | None = None) -> Plan:
        with suppress(JobAlreadyEnded):
            self.jobs.request_cancel(str(plan.job_id), "stop", now=self.clock.now())
        return super().pause(plan, sub_plans=sub_plans, version=version)


class TellsInAnyCase(PlanPause):
    """A run that has just completed the plan is cancelled too."""

    def _end_job(self, plan: Plan, *, told: bool) -> None:
        super()._end_job(plan, told=True)
