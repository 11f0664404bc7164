"""The workflow of one job: an activity for each phase of its plan, until the job has ended.

All decisions about a job are made in our database, under its fence. Temporal dispatches it to a worker, moves
the job of a dead worker to another, and forwards a cancel to the running code. So the workflow holds only the
job's id, and may be replayed from its history at any time.

Each step depends only on the workflow's input and the results of its activities. So a workflow that was
started by an older version, which had one activity for all phases and reported no phase, continues with this
one. The workflow imports no other module of CleverAgents.

While the job waits for its next phase or for a worker, none of its code runs. A cancel is then written to the
job's row by a local activity, which runs on any worker and needs no free slot.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType

__all__ = [
    "ACTIVITY",
    "CANCEL",
    "PHASES",
    "WORKFLOW",
    "ActivityResult",
    "JobWorkflow",
    "WorkflowInput",
    "activity_of",
]

WORKFLOW = "cleveragents-job"
ACTIVITY = "cleveragents-run-job"
CANCEL = "cleveragents-cancel-job"
PHASES = ("strategize", "execute", "apply", "undo")

# A history grows with every check of a job at a limit; this many checks are some thousand events.
_LOOKS = 500
_CANCEL_SECONDS = 60


def activity_of(phase: str) -> str:
    """Return the name of the activity for a phase; for an empty or unknown phase, that of the general
    activity.
    """
    return f"cleveragents-{phase}" if phase in PHASES else ACTIVITY


@dataclass
class WorkflowInput:
    """The job to run, beginning with a `phase` of its plan.

    A worker that is silent for `lease_seconds` has lost the job. `looks` counts the activities of earlier
    runs of this workflow, so that each activity of a job has a unique number.
    """

    job_id: str
    lease_seconds: float
    looks: int = 0
    phase: str = ""


@dataclass
class ActivityResult:
    """The result of an activity: the job's state, and whether it has ended.

    If the job has not ended, the result also holds the time and phase of the next activity.
    """

    state: str
    ended: bool
    wait_seconds: float = 0.0
    phase: str = ""


@workflow.defn(name=WORKFLOW)
class JobWorkflow:
    """Runs the activities of a job until the job has ended."""

    def __init__(self) -> None:
        self._cancelled = False

    @workflow.run
    async def run(self, order: WorkflowInput) -> str:
        """Run the workflow and return the final state of the job."""
        running = asyncio.create_task(self._run(order))
        try:
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                self._cancelled = True
                running.cancel()
                return await running
        except (asyncio.CancelledError, ActivityError):
            # guard: a plan whose workflow is cancelled is cancelled, and not restarted
            await workflow.execute_local_activity(
                CANCEL, args=[order.job_id], start_to_close_timeout=timedelta(seconds=_CANCEL_SECONDS)
            )
            raise

    async def _run(self, order: WorkflowInput) -> str:
        looks, phase = order.looks, order.phase
        while True:
            workflow.set_current_details(f"phase: {phase}" if phase else "")  # on Temporal's page
            told: ActivityResult = await workflow.execute_activity(
                activity_of(phase),
                args=[order.job_id, looks],
                result_type=ActivityResult,
                # No time limit: the plan's own budget limits it, and its heartbeat shows that it is alive.
                start_to_close_timeout=timedelta(days=365),
                heartbeat_timeout=timedelta(seconds=order.lease_seconds),
                retry_policy=RetryPolicy(
                    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10)
                ),
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            if told.ended:
                return told.state
            if self._cancelled:  # guard: the activity's code may have ended just before the cancel reached it
                raise asyncio.CancelledError
            if told.wait_seconds > 0:
                await workflow.sleep(told.wait_seconds)
            looks, phase = looks + 1, told.phase
            if looks - order.looks >= _LOOKS:
                workflow.continue_as_new(WorkflowInput(order.job_id, order.lease_seconds, looks, phase))
