"""The checks of `agents doctor` on the state: the database, the audit log, jobs, plans and their orphans.

A missing database is fine, and no check creates one.
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

# Processes before sandboxes: a process that runs in a sandbox ends before the sandbox is examined.
_SURVEYS: Mapping[str, Callable[[Container], Sequence[Orphan]]] = {
    "applies": unfinished_applies,
    "apply files": forgotten_asides,
    "plans": interrupted_plans,
    "processes": stray_processes,
    "sandboxes": lost_sandboxes,
    "refs": lost_refs,
    "mirrors": unneeded_mirrors,
}


def state_findings(container: Container, *, fix: bool = False) -> Iterator[DoctorCheck]:
    """Yield the checks of the database and, if it can be used, of its content and of orphans.

    Nothing is changed without `fix`.
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
        yield from findings_of(name, partial(survey, container), fix=fix)


def _missing_database(url: str) -> DoctorCheck | None:
    missing = _missing_file(url)
    if missing is None:
        return None
    why = obstacle(missing)
    if why is not None:
        remedy = "fix this, or set database.url to a file in a writable directory"
        return DoctorCheck(
            "database", DoctorVerdict.FAIL, f"{missing} does not exist and cannot be created: {why}", remedy
        )
    return DoctorCheck("database", DoctorVerdict.OK, f"{missing} (created on first use)")


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
        if holder is not None and holder.stopped:  # at once, without the timeout of a write
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
        remedy = "restore a backup, or move the file away and save its data with `sqlite3 FILE .recover`"
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
        remedy = "list all findings with `agents events verify`"
        return DoctorCheck("audit log", DoctorVerdict.FAIL, str(broken), remedy)
    return DoctorCheck(
        "audit log", DoctorVerdict.OK, "head verified; `agents events verify` verifies all events"
    )


def _jobs(container: Container) -> DoctorCheck:
    running = container.jobs.list(states=[JobState.RUNNING], limit=10_000)
    queued = container.jobs.list(states=[JobState.QUEUED], limit=10_000)
    finding = f"{len(queued)} queued, {len(running)} running"
    # The check of plans reports their jobs, with another remedy.
    others = [job for job in running if not job.kind.startswith(kind_of_plan(""))]
    dead = [job for job in others if job.owner and container.processes.is_alive(job.owner) is False]
    if dead:
        finding += f"; the worker died: {', '.join(job.id for job in dead[:5])}"
        return DoctorCheck(
            "jobs",
            DoctorVerdict.WARN,
            finding,
            "start a worker with `agents worker`: it takes over these jobs",
        )
    return DoctorCheck("jobs", DoctorVerdict.OK, finding)
