"""Jobs: what is queued, running and done."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, JsonValue, model_validator

from cleveragents.api.job_account import cancelled, job_account
from cleveragents.api.job_listing import listed_jobs
from cleveragents.jobs.model.job import JobState
from cleveragents.server.access import AnyUser, OperatedJob, ReadJob
from cleveragents.server.accounts import account_as
from cleveragents.server.listing import Limit, Listing
from cleveragents.server.plan_models import OfPlan
from cleveragents.server.problems import Problem, problem_said
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["jobs"])

_ID = r"^[!-~]+$"
_EXAMPLE = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"

AfterJob = Annotated[
    str | None,
    Query(max_length=100, pattern=_ID, description="what `next` of the last piece said", examples=[_EXAMPLE]),
]
States = Annotated[
    list[JobState] | None, Query(description="only these; may be repeated", examples=[["running"]])
]


class JobAccount(BaseModel):
    """A job. What it was given and what it said are masked."""

    id: str = Field(examples=[_EXAMPLE])
    kind: str = Field(examples=["plan:01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"])
    state: JobState = Field(examples=["running"])
    attempt: int = Field(description="how often it was begun", examples=[1])
    max_attempts: int = Field(examples=[3])
    priority: int = Field(description="higher goes first", examples=[0])
    worker: str | None = Field(description="who runs it", examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1D"])
    created: str = Field(examples=["2026-11-15T12:00:00Z"])
    updated: str = Field(examples=["2026-11-15T12:00:01Z"])
    not_before: str = Field(
        description="it is begun at this moment at the earliest", examples=["2026-11-15T12:00:00Z"]
    )
    cancel_reason: str | None = Field(examples=[None])
    error: str | None = Field(examples=[None])
    key: str | None = Field(description="of two jobs with one key the second is the first", examples=[None])
    payload: JsonValue = Field(examples=[{"plan_id": "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"}])
    result: JsonValue = Field(examples=[None])
    problem: Problem | None = Field(
        default=None,
        description="why what it was to do was refused, as a request is refused; null of other failures",
        examples=[None],
    )

    @model_validator(mode="after")
    def _say_why(self) -> Self:
        code = self.result.get("code") if isinstance(self.result, dict) else None
        if self.state is JobState.FAILED and isinstance(code, str) and self.error:
            self.problem = problem_said(409, code, self.error)
        return self


class JobCancel(BaseModel):
    """Why a job is cancelled."""

    reason: str = Field("cancelled by the user", min_length=1, max_length=500, examples=["wrong branch"])


@router.get("/jobs", operation_id="listJobs")
def list_jobs(
    here: Here,
    access: AnyUser,
    state: States = None,
    plan: OfPlan = None,
    order: Annotated[Literal["oldest", "newest"], Query(description="which come first")] = "oldest",
    limit: Limit = 100,
    after: AfterJob = None,
) -> Listing[JobAccount]:
    """Lists jobs, the oldest first unless the newest are asked for."""
    found = listed_jobs(
        here.container.database,
        states=state or (),
        plan_id=plan,
        limit=limit + 1,
        after=after,
        newest_first=order == "newest",
        scope=access.scope,
    )
    piece = found[:limit]
    items = [account_as(JobAccount, job_account(job)) for job in piece]
    return Listing[JobAccount](items=items, next=piece[-1].id if len(found) > limit else None)


@router.get("/jobs/{job_id}", operation_id="getJob")
def get_job(job: ReadJob) -> JobAccount:
    """Shows everything about one job."""
    return account_as(JobAccount, job_account(job))


@router.post("/jobs/{job_id}/cancel", operation_id="cancelJob")
def cancel_job(job: OperatedJob, here: Here, body: JobCancel | None = None) -> JobAccount:
    """Cancels a job. A queued one is cancelled at once; a running one is told to stop, and its processes end
    after a grace. Cancelling it again changes nothing."""
    container = here.container
    reason = (body or JobCancel.model_construct()).reason
    stopped = cancelled(container.jobs, job.id, reason, now=container.clock.now())
    return account_as(JobAccount, job_account(stopped))
