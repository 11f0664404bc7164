"""Whether the server lives, can work, and what it counts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text

from cleveragents.core.errors import (
    DatabaseFailed,
    DatabaseUnreachable,
    DatabaseUnusable,
    OutcomeUnknown,
    StoreFull,
)
from cleveragents.jobs.model.job import NewJob
from cleveragents.jobs.ports import WorkerRecord
from cleveragents.models.model.budget import BudgetLimits, Spend
from cleveragents.models.model.conversation import Usage
from cleveragents.models.store.sql_budget_store import SqlBudgetStore
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.server.middleware.identity import COOKIE
from cleveragents.server.problems import public_message
from tests.server_bench import ServerBench, server_bench


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBench]:
    with server_bench(tmp_path_factory.mktemp("server")) as opened:
        yield opened


def worker(bench: ServerBench, **facts: object) -> WorkerRecord:
    now = bench.container.clock.now()
    one = WorkerRecord(
        "w1", "serve", socket.gethostname(), os.getpid(), "h", "embedded", "plans", 2, 0, "working", now, now
    )
    return replace(one, **facts)


def figures(bench: ServerBench) -> dict[tuple[str, ...], float]:
    """Each sample by its name and the values of its labels."""
    answer = bench.admin.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_the_health_check_needs_no_token(bench: ServerBench) -> None:
    answer = bench.stranger.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_server_that_can_work_says_what_was_tried(bench: ServerBench) -> None:
    answer = bench.stranger.get("/readyz")
    assert answer.status_code == 200
    checks = {"database": "ok", "schema": "ok", "worker": "ok", "audit-log": "ok"}
    assert answer.json() == {"status": "ready", "checks": checks}


def test_readiness_reports_an_unreachable_database(bench: ServerBench) -> None:
    bench.container.database.close()
    answer = bench.stranger.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "not-ready"
    assert answer.json()["checks"] == {"database": "failed"}
    assert bench.stranger.get("/healthz").status_code == 200


def test_public_addresses_work_without_the_database(bench: ServerBench) -> None:
    bench.container.database.close()
    bench.stranger.cookies.set(COOKIE, "from-before")
    for client in (bench.viewer, bench.stranger):
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/plans/1").headers["content-type"].startswith("text/html")
        assert client.get("/readyz").json()["code"] == "not-ready"
        assert client.get("/metrics").status_code == 503
        assert client.get("/api/plans").status_code == 503


def test_public_addresses_work_with_a_broken_database(bench: ServerBench) -> None:
    drop = text("ALTER TABLE tokens RENAME TO tokens_of_before")
    bench.container.database.write(lambda connection: connection.execute(drop))
    assert bench.viewer.get("/healthz").json() == {"status": "ok"}
    assert bench.viewer.get("/plans/1").headers["content-type"].startswith("text/html")
    assert bench.viewer.get("/api/plans").json()["code"] == "database-failed"


def test_errors_do_not_reveal_the_database_address(
    bench: ServerBench, capsys: pytest.CaptureFixture[str]
) -> None:
    away = DatabaseUnreachable("postgresql://agents@db.inside/agents", "connection to db.inside refused")

    def ask() -> None:
        raise away

    bench.app.add_api_route("/api/away", ask)
    answer = bench.viewer.get("/api/away")
    assert (answer.status_code, answer.json()["code"]) == (503, "database-unreachable")
    others = (
        OutcomeUnknown(away.location, "it broke"),
        StoreFull(away.location),
        DatabaseUnusable(away.location, "it is of db.inside"),
        DatabaseFailed(away.location, "db.inside said so"),
    )
    for said in (answer.text, public_message(away), *map(public_message, others)):
        assert "database" in said
        assert "inside" not in said
    assert "db.inside" in capsys.readouterr().out, "the log says why"


def test_readiness_reports_another_schema_version(bench: ServerBench) -> None:
    moved = text("UPDATE alembic_version SET version_num = '0005'")
    bench.container.database.write(lambda connection: connection.execute(moved))
    answer = bench.stranger.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["schema"] == "failed"
    assert "revision 0005" in answer.json()["detail"]


def test_readiness_reports_a_silent_worker(bench: ServerBench) -> None:
    registry, now = bench.container.worker_registry, bench.container.clock.now()
    long_ago = now - timedelta(seconds=61)
    registry.report(worker(bench, id="other", pid=1, seen_at=long_ago))
    registry.report(worker(bench, id="gone", state="gone", seen_at=long_ago))
    registry.report(worker(bench))
    assert bench.stranger.get("/readyz").status_code == 200
    registry.report(worker(bench, seen_at=long_ago))
    answer = bench.stranger.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["worker"] == "failed"


def test_readiness_reports_a_broken_audit_log(bench: ServerBench) -> None:
    assert bench.admin.get("/api/events").json()["items"]
    for head in bench.state.glob("*head*"):
        head.unlink()
    answer = bench.stranger.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["audit-log"] == "failed"


def test_figures_need_a_token(bench: ServerBench) -> None:
    answer = bench.stranger.get("/metrics")
    assert answer.status_code == 401
    assert answer.json()["code"] == "not-authenticated"


def test_plans_jobs_workers_and_calls_are_counted(bench: ServerBench) -> None:
    container, now = bench.container, bench.container.clock.now()
    for _ in range(3):
        container.plan_parts.plans.create(PlanDraft("g", "a/b", "/r"), now=now)
    container.job_table.submit(NewJob("plan:x"), now=now - timedelta(seconds=100))
    with subprocess.Popen(["true"]) as ended:
        pass
    for record in (
        worker(bench, running=1),
        worker(bench, id="w2"),
        worker(bench, id="w3", seen_at=now - timedelta(minutes=5)),
        worker(bench, id="w4", home=container.home, pid=ended.pid),
    ):
        container.worker_registry.report(record)
    budgets = SqlBudgetStore(container.database, container.identifiers)
    budgets.open("p", BudgetLimits(), now=now)
    reservation = budgets.reserve(
        "p", "p", Spend(5, 10, 1), key="k", actor="a/b", node="n", model="m/x", now=now
    )
    budgets.settle(reservation, Spend(5 * 10**11, 9, 1), Usage(7, 2, 1), now=now)
    found = figures(bench)
    assert found["cleveragents_plans", "action", "queued"] == 3
    assert found["cleveragents_jobs", "queued"] == 1
    assert found["cleveragents_queue_oldest_seconds",] >= 100
    counted = {state: found.get(("cleveragents_workers", state)) for state in ("working", "idle", "lost")}
    assert counted == {"working": 1, "idle": 1, "lost": 2}
    shown = Counter(one["state"] for one in bench.viewer.get("/api/workers").json()["items"])
    assert counted == dict(shown)
    assert found["cleveragents_model_tokens", "input"] == 7
    assert found["cleveragents_model_tokens", "output"] == 2
    assert found["cleveragents_model_cost_dollars",] == 0.5
    assert found["cleveragents_stream_clients",] == 0
    assert found["cleveragents_events_waiting",] > 0
    before = found["cleveragents_events_position",]
    assert bench.viewer.get("/api/events").status_code == 200
    after = figures(bench)
    assert after["cleveragents_events_waiting",] == 0
    assert after["cleveragents_events_position",] > before


def test_requests_are_counted_by_route_and_not_by_path(bench: ServerBench) -> None:
    for name in ("one", "two"):
        assert bench.viewer.get(f"/api/plans/{name}/output").status_code == 404
    bench.viewer.request("BREW", "/healthz")
    found = figures(bench)
    route = "/api/plans/{plan_id}/output"
    assert found["cleveragents_http_requests_total", "GET", route, "404"] == 2
    assert found["cleveragents_http_request_seconds_count", route] == 2
    assert not any("one" in part for key in found for part in key)
    assert [key for key in found if "BREW" in key] == []


def test_each_application_counts_for_itself(bench: ServerBench, tmp_path: Path) -> None:
    bench.viewer.get("/healthz")
    with server_bench(tmp_path / "other") as other:
        assert ("cleveragents_http_requests_total", "GET", "/healthz", "200") not in figures(other)
    assert figures(bench)["cleveragents_http_requests_total", "GET", "/healthz", "200"] == 1


def test_health_responses_match_the_openapi_document(bench: ServerBench) -> None:
    document = bench.app.openapi()
    assert {"/healthz", "/readyz", "/metrics"} <= document["paths"].keys()
    assert json.dumps(document)
