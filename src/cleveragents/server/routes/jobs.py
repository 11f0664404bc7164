"""Routes of jobs and workers."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from cleveragents.api.jobs import JobView
from cleveragents.api.views import Page
from cleveragents.api.workers import WorkerView
from cleveragents.jobs.model.job import JobState
from cleveragents.server.access import AnyClient, JobId, JobOperator, JobViewer
from cleveragents.server.parameters import After, Limit, OfPlan

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["jobs"])

_ID = r"^[!-~]+$"
_EXAMPLE = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"

AfterJob = Annotated[
    str | None,
    Query(max_length=100, pattern=_ID, description="`next` of the previous page", examples=[_EXAMPLE]),
]
States = Annotated[
    list[JobState] | None, Query(description="only these states; may be repeated", examples=[["running"]])
]


class JobCancel(BaseModel):
    """The reason of a cancel."""

    reason: str = Field("cancelled by the user", min_length=1, max_length=500, examples=["wrong branch"])


@router.get("/jobs", operation_id="listJobs")
def list_jobs(
    client: AnyClient,
    state: States = None,
    plan: OfPlan = None,
    order: Annotated[Literal["oldest", "newest"], Query(description="the order of the jobs")] = "oldest",
    limit: Limit = 100,
    after: AfterJob = None,
) -> Page[JobView]:
    """List jobs, the oldest first unless `order` is `newest`."""
    newest = order == "newest"
    return client.jobs.list(states=state or (), plan=plan, newest_first=newest, limit=limit, after=after)


@router.get("/jobs/{job_id}", operation_id="getJob")
def get_job(job_id: JobId, client: JobViewer) -> JobView:
    """Show a job."""
    return client.jobs.get(job_id)


@router.post("/jobs/{job_id}/cancel", operation_id="cancelJob")
def cancel_job(job_id: JobId, client: JobOperator, body: JobCancel | None = None) -> JobView:
    """Cancel a job.

    A queued job is cancelled at once. A running job stops, and its processes end after a grace period. A
    second cancel changes nothing.
    """
    return client.jobs.cancel(job_id, reason=(body or JobCancel.model_construct()).reason)


@router.get("/workers", operation_id="listWorkers")
def list_workers(client: AnyClient, limit: Limit = 100, after: After = None) -> Page[WorkerView]:
    """List the workers of the last day, including those that have left."""
    return client.workers.list(limit=limit, after=after)
