"""Workers, through every client."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from cleveragents.api.views import as_json, every
from cleveragents.jobs.ports import WorkerRecord
from tests.contracts.client.conftest import ClientOf
from tests.server_plan_bench import PlanServer


@pytest.mark.parametrize("name", ["viewer", "admin"])
def test_every_user_sees_the_workers(server: PlanServer, client_of: ClientOf, name: str) -> None:
    container = server.bench.container
    now = container.clock.now()
    here = WorkerRecord("w1", "far", "elsewhere", 1, "h", "embedded", "plans,x", 4, 2, "working", now, now)
    for worker in (
        here,
        replace(here, id="w2", running=0, isolation="bubblewrap"),
        replace(here, id="w3", state="gone"),
        replace(here, id="w4", seen_at=now - timedelta(minutes=2)),
    ):
        container.worker_registry.report(worker)
    workers = client_of(name).workers
    found = {worker.id: worker for worker in every(lambda after: workers.list(limit=1, after=after))}
    assert list(found) == sorted(found)
    states = {known: (found[known].state, found[known].running) for known in ("w1", "w2", "w3", "w4")}
    assert states == {"w1": ("working", 2), "w2": ("idle", 0), "w3": ("gone", 0), "w4": ("lost", 0)}
    assert (found["w1"].isolation, found["w2"].isolation) == (None, "bubblewrap")
    assert "bench" in [worker.name for worker in workers.list().items]
    assert as_json(found["w3"]) in server.get("/workers")["items"]
