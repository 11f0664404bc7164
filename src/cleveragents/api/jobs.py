"""Jobs: list, get and cancel them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from cleveragents.api.format import timestamp
from cleveragents.api.views import Page, shown, view, view_of
from cleveragents.core.errors import Remedy
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.core.text.redaction import redact
from cleveragents.jobs.model.job import JobState
from cleveragents.plans.model.plan import PlanState

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from cleveragents.access.model.user import ProjectScope
    from cleveragents.api.access import Access
    from cleveragents.api.transport import HttpTransport
    from cleveragents.jobs.model.job import Job
    from cleveragents.storage.database import Database

__all__ = [
    "HttpJobs",
    "JobView",
    "Jobs",
    "LocalJobs",
    "ProblemView",
    "is_job_id",
    "job_ids_of",
    "job_view",
    "listed_jobs",
]

_EXAMPLE = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1C"
_MOMENT = "2026-11-15T12:00:00Z"
_REASON = "cancelled by the user"

_PLAN_KIND = "plan:"
"""The beginning of the kind of jobs that run plans."""
_PLAN_FAILED = "the plan failed"

_DEEDS = ("", "apply:", "undo:")
"""Prefixes of the keys of jobs that run, apply or undo a plan; `ID@VERSION` follows."""


@view
class ProblemView:
    """A problem (RFC 9457)."""

    type: str = shown(examples=["/problems/unknown-plan"])
    title: str = shown(examples=["unknown plan"])
    status: int = shown(examples=[404])
    code: str = shown("stable identifier of the problem, for programs", examples=["unknown-plan"])
    detail: str = shown("what happened")
    remedies: tuple[Remedy, ...] = ()


@view
class JobView:
    """A job. Secrets in its payload and result are masked."""

    id: str = shown(examples=[_EXAMPLE])
    kind: str = shown(examples=["plan:01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"])
    state: JobState = shown(
        "`failed` also for a job that ended normally, if its plan failed", examples=["running"]
    )
    attempt: int = shown("number of attempts so far", examples=[1])
    max_attempts: int = shown(examples=[3])
    priority: int = shown("jobs with a higher priority run first", examples=[0])
    worker: str | None = shown("the worker that runs the job", examples=["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1D"])
    created: datetime = shown(examples=[_MOMENT])
    updated: datetime = shown(examples=[_MOMENT])
    not_before: datetime = shown("the earliest time the job starts", examples=[_MOMENT])
    cancel_reason: str | None = shown(examples=[None])
    error: str | None = shown(examples=[None])
    key: str | None = shown("idempotency key: two requests with the same key create one job", examples=[None])
    payload: object = shown(examples=[{"plan_id": "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"}])
    result: object = shown(examples=[None])
    problem: ProblemView | None = shown(
        "the problem of a refused job; null for other failures", examples=[None]
    )


class Jobs(Protocol):
    """The jobs that the acting user can see."""

    def list(
        self,
        *,
        states: Collection[JobState] = (),
        plan: str | None = None,
        newest_first: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[JobView]:
        """Return one page of the jobs in these states and of this plan, oldest first unless `newest_first` is
        set.
        """

    def get(self, job_id: str) -> JobView:
        """Return a job. Raises `UnknownJob`."""

    def cancel(self, job_id: str, *, reason: str = _REASON) -> JobView:
        """Cancel a job: a queued job at once, a running job as soon as its processes have ended.

        A second call changes nothing. Raises `UnknownJob`, `JobAlreadyEnded`, `NotAllowed`.
        """


class LocalJobs:
    """Jobs in the database of this process. Any thread may use it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def list(
        self,
        *,
        states: Collection[JobState] = (),
        plan: str | None = None,
        newest_first: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[JobView]:
        found = listed_jobs(
            self._access.container.database,
            states=states,
            plan_id=plan,
            limit=limit + 1,
            after=after,
            newest_first=newest_first,
            scope=self._access.scope,
        )
        piece = tuple(job_view(job) for job in found[:limit])
        return Page(items=piece, next=piece[-1].id if len(found) > limit else None)

    def get(self, job_id: str) -> JobView:
        from cleveragents.access.model.user import Role

        return job_view(self._access.job(job_id, Role.VIEWER))

    def cancel(self, job_id: str, *, reason: str = _REASON) -> JobView:
        from cleveragents.access.model.user import Role
        from cleveragents.core.cancellation import user_reason
        from cleveragents.core.errors import JobAlreadyEnded

        container = self._access.container
        job = self._access.job(job_id, Role.OPERATOR)
        try:
            job = container.jobs.request_cancel(job.id, user_reason(reason), now=container.clock.now())
        except JobAlreadyEnded as ended:
            if ended.state != JobState.CANCELLED.value:
                raise
            job = container.jobs.get(job.id)
        return job_view(job)


class HttpJobs:
    """Jobs of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def list(
        self,
        *,
        states: Collection[JobState] = (),
        plan: str | None = None,
        newest_first: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[JobView]:
        order = "newest" if newest_first else "oldest"
        wanted = [state.value for state in states]
        return self._http.page(JobView, "/jobs", limit, after, state=wanted, plan=plan, order=order)

    def get(self, job_id: str) -> JobView:
        return view_of(JobView, self._http.get(f"/jobs/{job_id}"))

    def cancel(self, job_id: str, *, reason: str = _REASON) -> JobView:
        return view_of(JobView, self._http.post(f"/jobs/{job_id}/cancel", {"reason": reason}))


def is_job_id(text: str) -> bool:
    """Return whether the text can be the id of a job: ids are printable ASCII."""
    return text.isascii() and text.isprintable()


def job_view(job: Job) -> JobView:
    """Return the view of a job."""
    result = freeze(redact(job.result))
    return view_of(
        JobView,
        {
            "id": job.id,
            "kind": job.kind,
            "state": _shown_state(job).value,
            "attempt": job.attempt,
            "max_attempts": job.max_attempts,
            "priority": job.priority,
            "worker": job.owner.id if job.owner else None,
            "created": timestamp(job.created_at),
            "updated": timestamp(job.updated_at),
            "not_before": timestamp(job.not_before),
            "cancel_reason": _masked(job.cancel_reason),
            "error": _PLAN_FAILED if _is_of_failed_plan(job) else _masked(job.error),
            "key": job.key,
            "payload": _masked(job.payload),
            "result": result,
            "problem": _problem(job, result),
        },
    )


def _shown_state(job: Job) -> JobState:
    """Return the state for people: the job of a failed plan counts as failed, although the job itself
    succeeded.
    """
    return JobState.FAILED if _is_of_failed_plan(job) else job.state


def _is_of_failed_plan(job: Job) -> bool:
    result = job.result if isinstance(job.result, Mapping) else {}
    ended_well = job.state is JobState.SUCCEEDED and job.kind.startswith(_PLAN_KIND)
    return ended_well and result.get("state") == PlanState.ERRORED.value


def _is_shown_in(states: Collection[JobState]) -> ColumnElement[bool]:
    """Return the SQL condition for jobs whose `_shown_state` is one of these states."""
    from sqlalchemy import and_, case, literal

    from cleveragents.storage.tables import jobs

    failed = and_(
        jobs.c.state == JobState.SUCCEEDED.value,
        jobs.c.kind.startswith(_PLAN_KIND),
        jobs.c.result.contains(f'"state":"{PlanState.ERRORED.value}"', autoescape=True),
    )
    shown_state = case((failed, literal(JobState.FAILED.value)), else_=jobs.c.state)
    # The first condition uses the index.
    stored = {*states, JobState.SUCCEEDED} if JobState.FAILED in states else set(states)
    return and_(
        jobs.c.state.in_([state.value for state in stored]),
        shown_state.in_([state.value for state in states]),
    )


def _problem(job: Job, result: JsonValue) -> JsonValue:
    """Return the problem of a refused job; None for other failures."""
    code = result.get("code") if isinstance(result, Mapping) else None
    if job.state is not JobState.FAILED or not isinstance(code, str) or not job.error:
        return None
    return {
        "type": f"/problems/{code}",
        "title": code.replace("-", " "),
        "status": 409,
        "code": code,
        "detail": _masked(job.error),
        "remedies": result.get("remedies", ()) if isinstance(result, Mapping) else (),
    }


def _masked(value: JsonValue) -> JsonValue:
    # A payload or an error may contain a secret, and job lists are shared.
    return freeze(redact(value))


def listed_jobs(
    database: Database,
    *,
    states: Collection[JobState] = (),
    plan_id: str | None = None,
    limit: int,
    after: str | None = None,
    newest_first: bool = False,
    scope: ProjectScope = None,
) -> Sequence[Job]:
    """Return the matching jobs that come after the id `after`, oldest first unless `newest_first` is set."""
    from sqlalchemy import select

    from cleveragents.access.store.sql_project_store import project_of_job
    from cleveragents.jobs.store.rows import job_of
    from cleveragents.storage.tables import jobs

    query = select(jobs).order_by(jobs.c.id.desc() if newest_first else jobs.c.id).limit(limit)
    if states:
        query = query.where(_is_shown_in(states))
    if scope is not None:
        query = query.where(project_of_job(database.dialect).in_(scope))
    if after is not None:
        query = query.where(jobs.c.id < after if newest_first else jobs.c.id > after)
    with database.read() as connection:
        if plan_id is not None:
            query = query.where(_is_of(connection, plan_id))
        return [job_of(row) for row in connection.execute(query).mappings()]


def job_ids_of(database: Database, plan_id: str) -> Sequence[str]:
    """Return the ids of the jobs that run, apply or undo the plan."""
    from sqlalchemy import select

    from cleveragents.storage.tables import jobs

    with database.read() as connection:
        return connection.execute(select(jobs.c.id).where(_is_of(connection, plan_id))).scalars().all()


def _is_of(connection: Connection, plan_id: str) -> ColumnElement[bool]:
    """Return the condition for jobs of the plan. It tests the job's key, which contains the plan's id and has
    an index.
    """
    from sqlalchemy import and_, or_

    from cleveragents.storage.tables import jobs

    ways: list[ColumnElement[bool]] = []
    for deed in _DEEDS:
        begins = f"{deed}{plan_id}@"
        if connection.dialect.name == "sqlite":
            # SQLite's LIKE ignores case, and so cannot use the index.
            ways.append(and_(jobs.c.key >= begins, jobs.c.key < f"{deed}{plan_id}A"))
        else:
            ways.append(jobs.c.key.startswith(begins, autoescape=True))
    return or_(*ways)
