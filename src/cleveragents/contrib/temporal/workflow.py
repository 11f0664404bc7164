"""The workflow of one job: an activity for each phase of its plan, until the job has ended.

What is decided about a job is decided in our database, under its fence; Temporal hands it to a worker, sees
to it that a dead worker's job goes to another, and carries a cancel to the code that runs. So the workflow
holds nothing but the job's id, and may be run again from its history at any time.

What it does next follows from its order and from what its activities told, so one that an older version began
goes on: that knew one activity for all phases, and told of none. It imports nothing of ours.

A cancel that finds no code running, because the job waits for its next phase or for a worker, is carried to
the row. That is a local activity, done by whoever looks at the workflow: it needs no free place.
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

# A history grows with every look at a job whose lane is full; this many looks are some thousand events.
_LOOKS = 500
_CANCEL_SECONDS = 60


def activity_of(phase: str) -> str:
    """What the activity of a phase is called; one that has no name, or that nobody knows, is any."""
    return f"cleveragents-{phase}" if phase in PHASES else ACTIVITY


@dataclass
class WorkflowInput:
    """The job to be run, beginning with a `phase` of its plan. A worker that is silent for `lease_seconds`
    has lost it. `looks` counts the activities of earlier runs of this workflow, so that each activity of a
    job has a number of its own."""

    job_id: str
    lease_seconds: float
    looks: int = 0
    phase: str = ""


@dataclass
class ActivityResult:
    """What an activity says: the job's state, whether that is its end, and if not, when to look again and
    for which phase."""

    state: str
    ended: bool
    wait_seconds: float = 0.0
    phase: str = ""


@workflow.defn(name=WORKFLOW)
class JobWorkflow:
    """Runs a job's activities until the job has ended."""

    def __init__(self) -> None:
        self._cancelled = False

    @workflow.run
    async def run(self, order: WorkflowInput) -> str:
        """The state in which the job ended."""
        running = asyncio.create_task(self._run(order))
        try:
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                self._cancelled = True
                running.cancel()
                return await running
        except (asyncio.CancelledError, ActivityError):
            # guard: a plan whose workflow is cancelled is cancelled, and not begun anew
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
                # A plan takes as long as it takes: its own budget bounds it, and its heartbeat says it lives.
                start_to_close_timeout=timedelta(days=365),
                heartbeat_timeout=timedelta(seconds=order.lease_seconds),
                retry_policy=RetryPolicy(
                    initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10)
                ),
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            if told.ended:
                return told.state
            if self._cancelled:  # guard: the activity's code may have ended just before it heard of that
                raise asyncio.CancelledError
            if told.wait_seconds > 0:
                await workflow.sleep(told.wait_seconds)
            looks, phase = looks + 1, told.phase
            if looks - order.looks >= _LOOKS:
                workflow.continue_as_new(WorkflowInput(order.job_id, order.lease_seconds, looks, phase))
