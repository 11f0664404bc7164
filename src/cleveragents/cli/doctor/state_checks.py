"""What `agents doctor` looks at inside the state: the database, the audit log, jobs, plans
and what was left over of them.

A database that is not there yet is fine and stays that way: looking must not make one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.cli.doctor.apply_orphans import forgotten_asides
from cleveragents.cli.doctor.checks import DoctorCheck, DoctorVerdict, obstacle, perform
from cleveragents.cli.doctor.orphans import Orphan, findings_of
from cleveragents.cli.doctor.plan_orphans import interrupted_plans, unfinished_applies
from cleveragents.cli.doctor.remote_orphans import unneeded_mirrors
from cleveragents.cli.doctor.sandbox_orphans import lost_refs, lost_sandboxes
from cleveragents.cli.doctor.service_checks import engine
from cleveragents.cli.doctor.stray_orphans import stray_processes
from cleveragents.core.errors import AuditLogBroken
from cleveragents.jobs.model.job import JobState
from cleveragents.plans.run import kind_of_plan

if TYPE_CHECKING:
    from cleveragents.app.container import Container

__all__ = ["state_findings"]

# Processes before sandboxes: what still runs in one is to end before somebody looks at it.
_SURVEYS: Mapping[str, Callable[[Container], Sequence[Orphan]]] = {
    "applies": unfinished_applies,
    "put aside": forgotten_asides,
    "plans": interrupted_plans,
    "processes": stray_processes,
    "sandboxes": lost_sandboxes,
    "refs": lost_refs,
    "mirrors": unneeded_mirrors,
}


def state_findings(container: Container, *, mend: bool = False) -> Iterator[DoctorCheck]:
    """The findings about the database and, if that can be used, about what is in it and what was left over.

    Only `mend` changes anything.
    """
    url = container.settings.database.url
    database = perform("database", lambda: _missing_database(url) or _database(container))
    yield database
    usable = database.verdict is not DoctorVerdict.FAIL and _missing_file(url) is None
    if usable or container.settings.jobs.engine != "embedded":
        yield perform("engine", lambda: engine(container, has_database=usable))
    if not usable:
        return
    yield perform("audit log", lambda: _audit_log(container))
    yield perform("jobs", lambda: _jobs(container))
    for name, survey in _SURVEYS.items():
        yield from findings_of(name, partial(survey, container), mend=mend)


def _missing_database(url: str) -> DoctorCheck | None:
    missing = _missing_file(url)
    if missing is None:
        return None
    why = obstacle(missing)
    if why is not None:
        remedy = "mend that, or set database.url to a file in a directory that can be written"
        return DoctorCheck(
            "database", DoctorVerdict.FAIL, f"{missing} is missing and cannot be made: {why}", remedy
        )
    return DoctorCheck("database", DoctorVerdict.OK, f"{missing} (made at first use)")


def _missing_file(url: str) -> Path | None:
    scheme, _, path = url.partition(":///")
    if scheme != "sqlite" or Path(path).exists():
        return None
    return Path(path)


def _database(container: Container) -> DoctorCheck:
    from sqlalchemy import text

    from cleveragents.storage.database import HEAD
    from cleveragents.storage.sqlite_lock import write_lock_holder

    database = container.database
    if database.dialect == "sqlite":
        holder = write_lock_holder(database.location)
        if holder is not None and holder.stopped:  # nobody needs to wait for a minute to be told so
            return DoctorCheck(
                "database", DoctorVerdict.FAIL, f"{database.location}: {holder}", holder.remedy
            )
    database.write(lambda connection: None)
    finding = f"{database.location}, schema {HEAD}, writable"
    if database.dialect != "sqlite":
        return DoctorCheck("database", DoctorVerdict.OK, finding)
    with database.read() as connection:
        mode = connection.execute(text("PRAGMA journal_mode")).scalar()
        damage = connection.execute(text("PRAGMA quick_check(1)")).scalar()
    if damage != "ok":
        remedy = "restore a backup, or move the file away; `sqlite3 FILE .recover` saves what can be read"
        return DoctorCheck(
            "database", DoctorVerdict.FAIL, f"{database.location} is damaged: {damage}", remedy
        )
    verdict = DoctorVerdict.OK if mode == "wal" else DoctorVerdict.WARN
    remedy = "keep the state on a local disk: write-ahead logging does not work on network file systems"
    return DoctorCheck(
        "database", verdict, f"{finding}, journal mode {mode}", None if mode == "wal" else remedy
    )


def _audit_log(container: Container) -> DoctorCheck:
    try:
        # Raises unless the head can be read and attests the end of the log; `events verify` reads all of it.
        container.audit.sequence_pending()
    except AuditLogBroken as broken:
        remedy = "`agents events verify` names everything that is wrong"
        return DoctorCheck("audit log", DoctorVerdict.FAIL, str(broken), remedy)
    return DoctorCheck(
        "audit log", DoctorVerdict.OK, "its head is sound; `agents events verify` reads all of it"
    )


def _jobs(container: Container) -> DoctorCheck:
    running = container.jobs.list(states=[JobState.RUNNING], limit=10_000)
    queued = container.jobs.list(states=[JobState.QUEUED], limit=10_000)
    finding = f"{len(queued)} queued, {len(running)} running"
    # What became of a plan's job is told with the plan: its remedy is another.
    others = [job for job in running if not job.kind.startswith(kind_of_plan(""))]
    dead = [job for job in others if job.owner and container.processes.is_alive(job.owner) is False]
    if dead:
        finding += f"; the workers of {len(dead)} died: {', '.join(job.id for job in dead[:5])}"
        return DoctorCheck(
            "jobs", DoctorVerdict.WARN, finding, "start a worker: it takes them over by itself"
        )
    return DoctorCheck("jobs", DoctorVerdict.OK, finding)
