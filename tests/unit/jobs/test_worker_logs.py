"""Logs of workers and servers: each entry about a job names it and its plan."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog

from cleveragents.core.json_value import FrozenObject, freeze
from cleveragents.jobs.model.job import Job, NewJob, submitted
from cleveragents.jobs.worker.log import worker_log
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.ports.plans import PlanDraft
from tests.actor_plan_bench import accept, answer, call, executes, reviews, says, steps, strategizes
from tests.server_bench import server_bench
from tests.unit.cli.test_cli_worker import Home, ended

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.close()


def goal(home: Home) -> Plan:
    """Return a plan with actors whose executor runs a command, which is logged deep below the worker."""
    script = home.root / "script.yaml"
    rules = [
        strategizes(steps({"title": "t", "instructions": "i"})),
        executes(answer(call("command", script="echo x > made.txt")), says("done")),
        reviews(accept()),
    ]
    script.write_text(json.dumps({"version": 1, "rules": rules}))
    facts = {"arguments": {"goal": "a goal"}, "profile": "full-auto", "queue": "plans", "apply": "auto"}
    kept = freeze({**facts, "model": f"scripted/{script}"})
    assert isinstance(kept, FrozenObject)
    new = PlanDraft("a goal", "builtin/goal", str(home.root / "repository"), kept)
    return home.container.plan_parts.lifecycle.create(new)


def test_every_log_entry_of_an_attempt_names_its_job_and_plan(home: Home) -> None:
    programs = home.root / "programs"
    programs.mkdir()
    (programs / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (programs / "bwrap").chmod(0o755)
    home.environment |= {
        "PATH": f"{programs}:{home.environment['PATH']}",
        "CLEVERAGENTS_SANDBOX_ISOLATION": "auto",
        "CLEVERAGENTS_LOG_FORMAT": "json",
        "CLEVERAGENTS_LOG_LEVEL": "debug",
    }
    plan = goal(home)
    said = ended(home.worker("--until-idle"))
    assert home.now(plan).phase_state == (Phase.APPLY, PlanState.APPLIED), home.now(plan).error
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    events = [line["event"] for line in lines]
    between = lines[events.index("job.started") : events.index("job.finished") + 1]
    assert "command.not_isolated" in [line["event"] for line in between]
    assert {(line.get("job_id"), line.get("plan_id")) for line in between} == {(plan.job_id, plan.id)}
    assert {line["level"] for line in between} >= {"info", "warning"}


def job(**payload: str) -> Job:
    return submitted(NewJob("plan:p", payload), "j", NOW).job


def test_log_entries_of_other_threads_name_job_and_plan() -> None:
    with structlog.testing.capture_logs() as said:
        worker_log(job(plan_id="p")).info("a")
        worker_log(job()).info("b")
        worker_log().info("c")
    assert [(line.get("job_id"), line.get("plan_id")) for line in said] == [
        ("j", "p"),
        ("j", None),
        (None, None),
    ]


LOGS_OF_A_JOB = """
import sys
from datetime import UTC, datetime

import msgspec

from cleveragents.config.logging import configure_logging
from cleveragents.config.settings import Settings
from cleveragents.jobs.model.job import NewJob, submitted
from cleveragents.jobs.worker.log import speaking_of

job = submitted(NewJob("plan:p", {"plan_id": "p"}), "j", datetime(2026, 1, 1, tzinfo=UTC)).job
configure_logging(msgspec.convert({"log": {"level": sys.argv[1]}}, Settings))
with speaking_of(job):
    print("structlog" in sys.modules)
    import structlog

    structlog.get_logger().warning("within")
structlog.get_logger().warning("after")
"""


@pytest.mark.parametrize(("level", "events"), [("warning", []), ("info", ["job.started"])])
def test_log_bindings_of_an_attempt_end_with_it(level: str, events: list[str]) -> None:
    """A worker that does not log the start of a job does not load structlog for it."""
    command = [sys.executable, "-c", LOGS_OF_A_JOB, level]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert ended.stdout == f"{bool(events)}\n"
    assert [line["event"] for line in lines] == [*events, "within", "after"]
    assert [(line.get("job_id"), line.get("plan_id")) for line in lines[:-1]] == [("j", "p")] * (
        len(lines) - 1
    )
    assert "job_id" not in lines[-1]


def test_log_entries_of_a_request_name_its_plan_or_job(tmp_path: Path) -> None:
    with server_bench(tmp_path) as bench, structlog.testing.capture_logs() as said:
        for path in ("plans/01AAAA", "jobs/01BBBB", "plans"):
            bench.viewer.get(f"/api/{path}")
    names = [(line.get("plan_id"), line.get("job_id")) for line in said if line["event"] == "server.request"]
    assert names == [("01AAAA", None), (None, "01BBBB"), (None, None)]
