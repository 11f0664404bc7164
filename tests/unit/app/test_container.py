"""The composition root: parts built from the settings; events published and stored in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cleveragents.app.container import Container
from cleveragents.config.settings import Settings
from cleveragents.core.errors import Closed
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.jobs.model.job import JobState, NewJob
from cleveragents.jobs.ports import JobHandler
from cleveragents.jobs.worker.async_worker import AsyncJob
from cleveragents.testing.clock import RecordFaultPoints


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return msgspec.convert(
        {
            "state": {"directory": str(tmp_path)},
            "database": {"url": f"sqlite:///{tmp_path}/state.db"},
            "worker": {"poll_seconds": 0.02},
        },
        Settings,
    )


@pytest.fixture
def container(settings: Settings) -> Iterator[Container]:
    with Container(settings) as built:
        yield built


def submit(container: Container, kind: str = "demo") -> str:
    return container.jobs.submit(NewJob(kind), now=container.clock.now()).id


def event(container: Container, subject: str) -> DomainEvent:
    return DomainEvent(EventType.BREAKER_OPENED, subject, container.identifiers.new(), container.clock.now())


def test_every_durable_step_of_the_audit_log_is_a_fault_point(settings: Settings) -> None:
    faults = RecordFaultPoints()
    with Container(settings, faults=faults) as container:
        submit(container)
        container.audit.sequence_pending()
    assert {"audit.sequence.before_commit", "audit.head.after_rename"} <= set(faults.reached)


def test_committed_events_are_published_immediately_and_stored_once(container: Container) -> None:
    seen: list[str] = []
    container.bus.subscribe(EventType.JOB_SUBMITTED, lambda event: seen.append(event.subject))
    jobs = [submit(container) for _ in range(3)]
    assert seen == jobs
    container.audit.sequence_pending()
    assert [record.event.subject for record in container.audit.read()] == jobs
    assert container.audit.verify().ok


def test_emitted_events_are_stored_beside_committed_ones(container: Container) -> None:
    container.bus.emit_durably(event(container, "words"))
    job = submit(container)
    container.audit.sequence_pending()
    assert {record.event.subject for record in container.audit.read()} == {"words", job}


def test_closing_stores_emitted_events_and_leaves_no_thread(settings: Settings) -> None:
    before = set(threading.enumerate())
    with Container(settings) as container:
        for number in range(50):
            container.bus.emit(event(container, str(number)))
        container.strategies.circuit_breaker.record_failure("words")
    assert set(threading.enumerate()) <= before
    with pytest.raises(Closed):
        _ = container.jobs
    with Container(settings) as reopened:
        assert [record.event.subject for record in reopened.audit.read()] == [str(n) for n in range(50)]


def test_a_breaker_that_opens_is_an_event(container: Container) -> None:
    for _ in range(3):
        container.strategies.circuit_breaker.record_failure("words")
    container.strategies.circuit_breaker.reset("words")
    container.bus.emit_durably(event(container, "last"))
    told = [(record.event.event_type, record.event.subject) for record in container.audit.read()]
    assert told[:2] == [(EventType.BREAKER_OPENED, "words"), (EventType.BREAKER_CLOSED, "words")]


def test_a_breaker_announces_without_building_or_waiting_for_anything(container: Container) -> None:
    """A strategy runs under a deadline: the bus exists by then, and a full one refuses immediately."""
    breaker = container.strategies.circuit_breaker
    assert "_bus" in vars(container)
    entered = threading.Event()
    leave = threading.Event()

    def stand_still(_: DomainEvent) -> None:
        entered.set()
        leave.wait(30)

    container.bus.subscribe(None, stand_still, ordered=True, bound=1)
    container.bus._block_seconds = 3600.0
    for _ in range(2):
        container.bus.emit(event(container, "filler"))
        assert entered.wait(30)
    opening = threading.Thread(
        target=lambda: [breaker.record_failure("words") for _ in range(3)], daemon=True
    )
    opening.start()
    opening.join(60)
    came_back = not opening.is_alive()
    leave.set()
    assert came_back
    assert container.bus.statistics().refused == 1


def test_a_worker_runs_jobs_as_the_settings_say(container: Container) -> None:
    def run(job: AsyncJob) -> object:
        return {"attempt": job.attempt}

    worker = container.worker({"demo": JobHandler(run)}, name="worker-1")
    worker.start()
    job_id = submit(container)
    worker.run_until_idle(30)
    job = container.jobs.get(job_id)
    assert (job.state, job.result) == (JobState.SUCCEEDED, {"attempt": 1})


@pytest.mark.parametrize(("lease", "heartbeat"), [(1.0, 0.4), (86_400.0, 34_560.0), (0.0001, 0.00004)])
def test_every_valid_setting_makes_a_worker(tmp_path: Path, lease: float, heartbeat: float) -> None:
    settings = msgspec.convert(
        {
            "state": {"directory": str(tmp_path)},
            "database": {"url": f"sqlite:///{tmp_path}/state.db"},
            "worker": {"lease_seconds": lease, "heartbeat_seconds": heartbeat},
        },
        Settings,
    )
    with Container(settings) as container:
        assert container.worker({}, name="worker-1").statistics().running == 0


def test_the_same_part_every_time(container: Container) -> None:
    assert container.jobs is container.jobs
    assert container.bus is container.bus
    assert container.changesets is container.changesets


def test_a_process_keeps_the_name_of_its_state_directory(settings: Settings, tmp_path: Path) -> None:
    """Otherwise one process would own its plans under two names."""
    with Container(settings) as began:
        name = began.home
        (tmp_path / "home").unlink()
        assert began.home == name
        with Container(settings) as next_one:
            assert next_one.home != name
