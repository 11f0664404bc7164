"""A planted secret is looked for wherever the server keeps or shows something: database, log, events, API
and page."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import select

from cleveragents.access.model.project import Project
from cleveragents.api.projects import project_view
from cleveragents.app.worker_parts import WorkerParts
from cleveragents.config.logging import configure_logging
from cleveragents.storage.tables import METADATA
from tests.server_bench import ServerBench, server_bench

SECONDS_LIMIT = 60.0
# Complete only in the output of a command: its arguments are stored unchanged, or it could not run.
HALVES = ("sk-live", "0123456789abcdefghijklmnop")
PLANTED = "-".join(HALVES)
TYPED = "glpat-0123456789abcdefghij"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ServerBench]:
    with server_bench(tmp_path, server__requests_per_minute=100_000, log__format="json") as made:
        yield made


def ran(bench: ServerBench, request: dict[str, Any]) -> str:
    """The plan that such a request makes, once a worker is through with it."""
    made = bench.operator.post("/api/plans", json=request, headers={"Idempotency-Key": request["goal"][:3]})
    assert made.status_code == 201, made.text
    plan_id: str = made.json()["id"]
    with WorkerParts(bench.container).start(name="worker", concurrency=1):
        give_up = time.monotonic() + SECONDS_LIMIT
        while bench.operator.get(f"/api/plans/{plan_id}").json()["state"] in ("queued", "processing"):
            assert time.monotonic() < give_up
            threading.Event().wait(0.05)
    return plan_id


def read_everywhere(bench: ServerBench, plan_id: str) -> dict[str, str]:
    """Return the response of every GET of the API, the same for each role, and the page."""
    ids = {"plan_id": plan_id, "job_id": bench.operator.get("/api/jobs").json()["items"][0]["id"]}
    ids |= {"number": "1", "name": "operator", "namespace": "builtin"}
    ids |= {"conversation_id": plan_id}  # there is none; its reads are tested with conversations
    said: dict[str, str] = {}
    for path, methods in bench.app.openapi()["paths"].items():
        if "get" in methods and not path.endswith("/stream"):
            said[path] = bench.admin.get(path.format_map(ids), params={"path": "README.md"}).text
    said["patch"] = bench.admin.get(f"/api/plans/{plan_id}/diff", params={"format": "patch"}).text
    said["page"] = bench.stranger.get(f"/plans/{plan_id}").text
    return said


def test_a_secret_that_a_command_prints_is_nowhere_but_in_the_command(
    bench: ServerBench, capfd: pytest.CaptureFixture[str]
) -> None:
    configure_logging(bench.container.settings)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    bench.repository()
    first, second = HALVES
    script = f"first={first}; echo $first-{second}; echo PASSWORD=$first-{second} >&2"
    plan_id = ran(
        bench,
        {
            "resource": "shop",
            "goal": f"use {TYPED}",
            "action": "builtin/command",
            "arguments": {"argv": ["sh", "-c", script]},
            "checks": [f"first={first}; echo $first-{second}; echo {TYPED}"],
            "profile": "full-auto",
        },
    )
    said = read_everywhere(bench, plan_id)
    assert plan_id in said["/api/plans"]
    assert "***" in said["/api/plans/{plan_id}/output"]
    assert "***" in said["/api/plans/{plan_id}/calls"]
    log = capfd.readouterr().err
    assert plan_id in log
    with bench.container.database.read() as connection:
        rows = {
            name: repr(list(connection.execute(select(table)))) for name, table in METADATA.tables.items()
        }
    assert plan_id in rows["plan_output"]
    kept = {path.name: path.read_bytes() for path in bench.state.glob("*") if path.is_file()}
    for place, text in {**said, **rows, "log": log}.items():
        assert PLANTED not in text, place
    for place, content in kept.items():
        assert PLANTED.encode() not in content, place
    for place, text in {**said, "log": log, "events": rows["events"] + rows["outbox"]}.items():
        assert TYPED not in text, place
    assert json.loads(said["/api/events"])["items"]


def test_descriptions_are_shown_without_secrets(bench: ServerBench) -> None:
    yaml = f"""\
name: team/publish
description: Publishes with {TYPED}.
arguments:
  way: {{type: string, default: {TYPED}}}
execute:
  steps:
    - tool: command
      with: {{argv: [publish, --token, {TYPED}]}}
checks:
  - {{name: published, command: published {TYPED}}}
"""
    made = bench.admin.post("/api/actions", json={"yaml": yaml})
    assert made.status_code == 201, made.text
    project = bench.admin.post("/api/projects", json={"name": "shop", "description": f"opens with {TYPED}"})
    assert project.json()["description"] == "opens with ***"
    bench.admin.put("/api/projects/shop/members/viewer", json={"role": "viewer"})
    written_before = Project("shop", f"opens with {TYPED}", datetime.now(UTC))
    assert project_view(written_before, 0).description == "opens with ***"
    shown = bench.viewer.get("/api/actions/team/publish")
    assert shown.json()["steps"][0]["with"] == {"argv": ["publish", "--token", "***"]}
    for answer in (made, shown, bench.viewer.get("/api/actions"), bench.viewer.get("/api/projects")):
        assert "***" in answer.text
        assert TYPED not in answer.text
    assert TYPED in str(bench.container.plan_parts.actions(None).get("team/publish").steps), "it is run so"
