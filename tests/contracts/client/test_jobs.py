"""Jobs, through every client."""

from __future__ import annotations

import pytest

from cleveragents.api.client import Client
from cleveragents.api.views import as_json, every
from cleveragents.core.errors import JobAlreadyEnded, NotAllowed, UnknownJob
from cleveragents.jobs.model.job import JobState
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer


def test_a_job_is_listed_and_found(server: PlanServer, client: Client) -> None:
    plan = server.rested(server.command("true"))
    (job,) = client.jobs.list(plan=plan["id"], newest_first=True, limit=1).items
    assert client.jobs.get(job.id) == job
    assert (job.state, job.kind) == (JobState.SUCCEEDED, f"plan:{plan['id']}")
    assert as_json(job) == server.get(f"/jobs/{job.id}")


def test_the_job_of_a_failed_plan_has_failed(server: PlanServer, client: Client) -> None:
    plan = server.rested(server.command("false"))
    good = server.rested(server.command("true"))
    job = client.jobs.get(plan["job"])
    assert (job.state, job.error) == (JobState.FAILED, "the plan failed")
    failed = [one.id for one in client.jobs.list(states=[JobState.FAILED], plan=plan["id"]).items]
    assert failed == [job.id]
    assert client.jobs.list(states=[JobState.SUCCEEDED], plan=plan["id"]).items == ()
    assert len(client.jobs.list(states=[JobState.SUCCEEDED], plan=good["id"]).items) == 1
    assert client.jobs.list(states=[JobState.FAILED], plan=good["id"]).items == ()


def test_pages_follow_each_other(server: PlanServer, client: Client) -> None:
    plan = server.rested(server.command("true"))["id"]
    server.rested(server.command("true"))
    found = [job.id for job in every(lambda after: client.jobs.list(limit=1, after=after))]
    assert found == sorted(found)
    assert len(found) == len(set(found)) >= 2
    assert [job.id for job in client.jobs.list(plan=plan).items] == [server.get(f"/plans/{plan}")["job"]]


def test_a_job_that_does_not_exist_is_an_error_with_its_name(client: Client) -> None:
    with pytest.raises(UnknownJob) as caught:
        client.jobs.get("nothing")
    assert caught.value.job_id == "nothing"


def test_a_job_that_ended_cannot_be_cancelled(server: PlanServer, client: Client) -> None:
    job = server.rested(server.command("true"))["job"]
    with pytest.raises(JobAlreadyEnded) as caught:
        client.jobs.cancel(job)
    assert (caught.value.job_id, caught.value.state) == (job, "succeeded")


def test_a_viewer_cannot_cancel_a_job(server: PlanServer, client_of: ClientOf) -> None:
    job = server.rested(server.command("true"))["job"]
    with pytest.raises(NotAllowed) as caught:
        client_of("viewer").jobs.cancel(job)
    assert caught.value.name == "viewer"
