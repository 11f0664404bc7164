"""What `agents doctor` says of models, the server, traces, who hands out jobs, and mirrors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cleveragents.access.model.project import ResourceKind
from cleveragents.app.container import Container
from cleveragents.cli.doctor.checks import DoctorCheck, disk_space
from cleveragents.cli.doctor.orphans import NotRemoved
from cleveragents.cli.doctor.remote_orphans import remove_mirrors, unneeded_mirrors
from cleveragents.cli.doctor.service_checks import engine, models, server, service_findings, telemetry
from cleveragents.cli.doctor.state_checks import state_findings
from cleveragents.config.settings import Settings
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.demo.story import demo_settings
from cleveragents.jobs.model.job import NewJob
from cleveragents.jobs.ports import WorkerRecord
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.server.first_token import token_file
from cleveragents.server.server_file import announced, server_file
from tests.collector import Collector, collector
from tests.conditions import wait_until
from tests.ready_database import ready_database
from tests.remotes import new_remote
from tests.temporal_bench import settle_sdk, temporal_program, temporal_server
from tests.unit.contrib.test_telemetry import refused

if temporal_program() is not None:
    settle_sdk()

LONG_AGO = 1_000_000_000


@pytest.fixture(scope="module")
def listening() -> Iterator[Collector]:
    """Somebody who answers, if only that it does not understand."""
    with collector() as made:
        yield made


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def container_of(closing: ExitStack, home: Path, **sections: Any) -> Container:
    facts = msgspec.to_builtins(demo_settings(home / "state"))
    ready_database(home / "state" / "state.db")
    for section, values in sections.items():
        facts[section] = {**facts[section], **values}
    return closing.enter_context(Container(msgspec.convert(facts, Settings)))


def said(check: DoctorCheck) -> tuple[str, str]:
    return check.verdict.value, f"{check.finding} → {check.remedy}"


def test_a_model_without_a_key_and_a_server_that_is_silent_are_found(
    closing: ExitStack, tmp_path: Path, listening: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_BASE_URL", "_API_BASE"))]:
        monkeypatch.delenv(name)
    assert said(models(container_of(closing, tmp_path)))[0] == "ok"
    named = {"default": "anthropic/claude-x", "fallback": "openai/gpt-x"}
    verdict, words = said(models(container_of(closing, tmp_path, models={**named, "base_url": refused()})))
    assert (verdict, "no key for anthropic/claude-x →" in words) == ("warn", True)
    only = {"default": "openai/gpt-x"}
    verdict, words = said(models(container_of(closing, tmp_path, models={**only, "base_url": refused()})))
    assert (verdict, "does not answer: " in words) == ("warn", True)
    heard = container_of(closing, tmp_path, models={**only, "base_url": f"{listening.url}/v1"})
    assert said(models(heard)) == ("ok", "openai/gpt-x → None")
    nobody = {"default": "scripted/none", "base_url": refused()}
    with pytest.raises(CleverAgentsError):
        models(container_of(closing, tmp_path, models=nobody))


def test_a_running_and_a_killed_server_are_reported(tmp_path: Path, listening: Collector) -> None:
    assert said(server(tmp_path)) == ("ok", "not running → None")
    with announced(tmp_path, listening.url, "now"):
        assert said(server(tmp_path)) == ("ok", f"{listening.url} (pid {os.getpid()}) → None")
        left = server_file(tmp_path).read_text()
    with announced(tmp_path, refused(), "now"):
        verdict, words = said(server(tmp_path))
        assert (verdict, "does not answer" in words) == ("warn", True)
    server_file(tmp_path).write_text(left)
    verdict, words = said(server(tmp_path))
    assert (verdict, "a killed server left" in words) == ("warn", True)


def test_a_token_readable_by_others_is_reported(tmp_path: Path) -> None:
    token_file(tmp_path).write_text("x")
    token_file(tmp_path).chmod(0o640)
    verdict, words = said(server(tmp_path))
    assert (verdict, "chmod 600" in words) == ("warn", True)
    token_file(tmp_path).chmod(0o600)
    assert said(server(tmp_path))[0] == "ok"


def test_a_collector_is_asked_and_no_password_is_shown(listening: Collector) -> None:
    def of(endpoint: str) -> tuple[str, str]:
        return said(telemetry(msgspec.convert({"telemetry": {"endpoint": endpoint}}, Settings)))

    assert of("") == ("ok", "off → None")
    assert of(listening.url) == ("ok", f"{listening.url}/v1/traces → None")
    verdict, words = of(refused().replace("//", "//user:hunter2@"))
    assert (verdict, "hunter2" in words, "does not answer" in words) == ("warn", False, True)
    assert of("https://127.0.0.1:1/x")[0] == "warn"


def test_traces_without_their_package_are_a_failure() -> None:
    settings = msgspec.convert({"telemetry": {"endpoint": "http://x"}}, Settings)
    verdict, words = said(telemetry(settings, lambda name: None))
    assert (verdict, "[telemetry]'" in words) == ("fail", True)


def worker(container: Container, seconds_ago: float, state: str = "working") -> WorkerRecord:
    seen = container.clock.now() - timedelta(seconds=seconds_ago)
    name = f"w{seconds_ago}{state}"
    return WorkerRecord(name, name, "host", 1, "home", "embedded", "plans", 4, 0, state, seen, seen)


def test_jobs_without_workers_and_silent_workers_are_found(closing: ExitStack, tmp_path: Path) -> None:
    container = container_of(closing, tmp_path)
    registry, jobs, now = container.worker_registry, container.job_table, container.clock.now()
    registry.report(worker(container, 300))
    registry.report(worker(container, 1, "gone"))
    jobs.submit(NewJob("plan:a"), now=now)
    jobs.submit(NewJob("plan:a", queue="plans"), now=now + timedelta(hours=1))
    assert said(engine(container)) == (
        "ok",
        "embedded; 0 workers seen in the last minute → None",
    )
    job = jobs.submit(NewJob("plan:b", queue="plans"), now=now)
    verdict, words = said(engine(container))
    assert (verdict, "1 job queued" in words, "`agents worker`" in words) == ("warn", True, True)
    registry.report(worker(container, 1))
    assert said(engine(container))[0] == "ok"
    silent = WorkerIdentity("w", "elsewhere", 1, 1)
    assert jobs.claim(silent, ["plan"], now=now - timedelta(hours=1), queues=("plans",)) is None
    taken = jobs.claim(silent, ["plan"], now=now, queues=("plans",))
    assert taken is not None
    assert taken.id == job.id
    assert said(engine(container))[0] == "ok"
    jobs.heartbeats({job.id: taken.fence}, now=now - timedelta(hours=1))
    verdict, words = said(engine(container))
    assert (verdict, job.id in words) == ("warn", True)


def test_temporal_is_asked_for_its_namespace(closing: ExitStack, tmp_path: Path) -> None:
    silent = {"engine": "temporal", "temporal_address": refused().removeprefix("http://")}
    container = container_of(closing, tmp_path, jobs=silent)
    [found] = [check for check in state_findings(container) if check.name == "engine"]
    assert (found.verdict.value, "namespace default" in found.finding) == ("fail", True)
    odd = {"engine": "temporal", "temporal_address": "nowhere"}
    assert said(engine(container_of(closing, tmp_path, jobs=odd)))[0] == "fail"
    verdict, words = said(engine(container, find=lambda name: None))
    assert (verdict, "[temporal]'" in words) == ("fail", True)


@pytest.mark.skipif(temporal_program() is None, reason="the Temporal server is not installed")
def test_temporal_that_answers_is_well_unless_it_lacks_the_namespace(
    closing: ExitStack, tmp_path: Path
) -> None:
    with temporal_server() as address:
        there = {"engine": "temporal", "temporal_address": address}
        wrong = container_of(closing, tmp_path, jobs={**there, "temporal_namespace": "nowhere"})
        verdict, words = said(engine(wrong))
        assert (verdict, "nowhere" in words) == ("fail", True)
        right = container_of(closing, tmp_path, jobs=there)
        # Its socket may be open before its namespace is there.
        wait_until(lambda: said(engine(right, has_database=False))[0] == "ok")
        assert said(engine(right)) == ("ok", "temporal; 0 workers seen in the last minute → None")


def test_a_database_that_is_not_there_stays_so_and_temporal_is_asked_all_the_same(
    closing: ExitStack, tmp_path: Path
) -> None:
    facts = msgspec.to_builtins(demo_settings(tmp_path / "state"))
    facts["jobs"] = {"engine": "temporal", "temporal_address": refused().removeprefix("http://")}
    container = closing.enter_context(Container(msgspec.convert(facts, Settings)))
    assert [check.name for check in state_findings(container)] == ["database", "engine"]
    assert not (tmp_path / "state").exists()


def test_a_disk_smaller_than_the_quota_is_reported(tmp_path: Path) -> None:
    assert said(disk_space(tmp_path, free=20_000_000_000, quota=50_000_000_000))[0] == "ok"
    verdict, words = said(disk_space(tmp_path, free=2_000_000_000, quota=50_000_000_000))
    assert (verdict, "sandbox.quota_bytes" in words) == ("warn", True)


def test_mirrors_that_no_plan_and_no_resource_names_are_removed(closing: ExitStack, tmp_path: Path) -> None:
    container = container_of(closing, tmp_path)
    assert unneeded_mirrors(container) == []
    mirrors = container.plan_parts.remotes.mirrors
    remotes = [new_remote(tmp_path / name) for name in ("one", "two", "three")]
    for remote in remotes:
        mirrors.fetch(remote.address)
    assert unneeded_mirrors(container) == []  # somebody may be about to use them
    for path in (tmp_path / "state" / "mirrors").glob("*.git"):
        os.utime(path.with_suffix(".lock"), (LONG_AGO, LONG_AGO))
    draft = tmp_path / "state" / "mirrors" / "a.git.1.new"
    draft.mkdir()
    os.utime(draft, (LONG_AGO, LONG_AGO))
    assert len(unneeded_mirrors(container)) == 4
    now = container.clock.now()
    container.projects.add("paint", now=now)
    url = remotes[0].address.url
    container.projects.add_resource("shop", "paint", ResourceKind.REMOTE, url, branch="main", now=now)
    container.projects.add_resource("here", "paint", ResourceKind.DIRECTORY, str(remotes[2].clone), now=now)
    for resource in (remotes[1].resource, str(remotes[2].clone)):
        container.plan_parts.plans.create(PlanDraft("g", "builtin/command", resource), now=now)
    left, of_the_dead = unneeded_mirrors(container)
    assert remove_mirrors(container.plan_parts.remotes, dry_run=True) == 1
    plan = container.plan_parts.plans.create(PlanDraft("g", "builtin/command", remotes[2].resource), now=now)
    with pytest.raises(NotRemoved, match="in use now"):  # it did not, when it was looked at
        left.fix()
    container.plan_parts.plans.delete(plan, now=now)
    assert left.fix().startswith("removed the mirror")
    assert of_the_dead.fix() == f"removed {draft}"
    assert unneeded_mirrors(container) == []
    assert mirrors.fetched(remotes[2].address) == remotes[2].tip()


def test_a_mirror_stays_while_a_sandbox_borrows_from_it_though_its_plan_is_nowhere(
    closing: ExitStack, tmp_path: Path
) -> None:
    """Deleted; or of another database, for which this state directory was used before."""
    container = container_of(closing, tmp_path)
    parts, remote = container.plan_parts, new_remote(tmp_path / "one")
    mirrors, now = parts.remotes.mirrors, container.clock.now()
    checkout = mirrors.checkout(remote.address, mirrors.fetched(remote.address))
    plan = parts.plans.create(PlanDraft("g", "builtin/command", remote.resource), now=now)
    asked = SandboxRequest(plan.id, checkout, from_head=True, remote=remote.resource)
    sandbox = parts.sandboxes.create(asked)
    parts.plans.delete(plan, now=now)
    [lock] = mirrors.directory.glob("*.lock")
    os.utime(lock, (LONG_AGO, LONG_AGO))
    assert remove_mirrors(parts.remotes, dry_run=False) == 0
    assert sandbox.keeps(sandbox.base)
    parts.sandboxes.remove(plan.id)
    assert remove_mirrors(parts.remotes, dry_run=False) == 1


def test_all_three_are_asked_at_once_in_their_order(closing: ExitStack, tmp_path: Path) -> None:
    found = list(service_findings(container_of(closing, tmp_path)))
    assert [check.name for check in found] == ["models", "server", "telemetry"]
