"""The checks of `agents doctor` on services: models, the server, telemetry and the job engine.

Network checks run in parallel, each with a timeout.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cleveragents.api.format import counted
from cleveragents.cli.doctor.checks import DoctorCheck, DoctorVerdict, perform
from cleveragents.config.entry_points import install_command
from cleveragents.core.errors import ConfigurationError, EngineUnavailable
from cleveragents.core.text.redaction import redact_text
from cleveragents.jobs.model.job import Job, JobState

if TYPE_CHECKING:
    from temporalio.client import Client

    from cleveragents.app.container import Container
    from cleveragents.config.settings import Settings

__all__ = ["engine", "models", "server", "service_findings", "telemetry"]

Find = Callable[[str], object]
"""Returns the spec of a package, or None if the package is not installed."""

_SECONDS = 3.0
_LATELY = timedelta(seconds=60)
_SILENT_LEASES = 4
_PAGE = 10_000


def service_findings(container: Container) -> Iterator[DoctorCheck]:
    """Yield the checks of models, the server and telemetry."""
    checks: dict[str, Callable[[], DoctorCheck]] = {
        "models": partial(models, container),
        "server": partial(server, container.state_directory),
        "telemetry": partial(telemetry, container.settings),
    }
    with ThreadPoolExecutor(len(checks)) as asking:
        asked = [asking.submit(perform, name, check) for name, check in checks.items()]
        yield from [one.result() for one in asked]


def models(container: Container) -> DoctorCheck:
    """Check that the configured models have keys and that `models.base_url` answers."""
    settings = container.settings.models
    named = list(dict.fromkeys(filter(None, (settings.default, settings.fallback))))
    if not named:
        return DoctorCheck(
            "models",
            DoctorVerdict.OK,
            "no default model",
        )
    keyless = [name for name in named if not container.models.facts(name).keyed]
    if keyless:
        remedy = f"run `agents model test {keyless[0]}` to see where to put the key"
        return DoctorCheck("models", DoctorVerdict.WARN, f"no key for {', '.join(keyless)}", remedy)
    if settings.base_url and any(name.startswith("openai/") for name in named):
        problem = _silence(settings.base_url)
        if problem is not None:
            finding = f"{redact_text(settings.base_url)} does not answer: {problem}"
            return DoctorCheck(
                "models",
                DoctorVerdict.WARN,
                finding,
                "start the server at this address, or change models.base_url",
            )
    return DoctorCheck("models", DoctorVerdict.OK, ", ".join(named))


def server(state_directory: Path) -> DoctorCheck:
    """Check the server that commands go through, and the permissions of its token."""
    from cleveragents.server.first_token import token_file
    from cleveragents.server.server_file import running_server, server_file

    token = token_file(state_directory)
    if token.exists() and stat.S_IMODE(token.stat().st_mode) & 0o077:
        finding = f"other users can read {token} and act as admin"
        remedy = f"chmod 600 {token}, then replace the token; see `agents user token --help`"
        return DoctorCheck("server", DoctorVerdict.WARN, finding, remedy)
    file = server_file(state_directory)
    running = running_server(state_directory)
    if running is None and file.exists():
        finding = f"not running; a killed server left {file}"
        return DoctorCheck(
            "server", DoctorVerdict.WARN, finding, "start a server with `agents serve`; it replaces the file"
        )
    if running is None:
        return DoctorCheck("server", DoctorVerdict.OK, "not running")
    problem = _silence(f"{running.url}/healthz")
    if problem is not None:
        finding = f"{running.url} (pid {running.pid}) does not answer: {problem}"
        return DoctorCheck(
            "server", DoctorVerdict.WARN, finding, "read the log of the server, or restart the server"
        )
    return DoctorCheck("server", DoctorVerdict.OK, f"{running.url} (pid {running.pid})")


def telemetry(settings: Settings, find: Find = find_spec) -> DoctorCheck:
    """Check that the collector of traces answers."""
    from cleveragents.contrib.telemetry.otlp import ensure_installed, traces_url

    endpoint = settings.telemetry.endpoint
    if not endpoint:
        return DoctorCheck("telemetry", DoctorVerdict.OK, "off")
    try:
        ensure_installed(find)
    except ConfigurationError as error:
        remedy = f"{install_command('telemetry')}, or unset telemetry.endpoint"
        return DoctorCheck("telemetry", DoctorVerdict.FAIL, error.problem, remedy)
    url = traces_url(endpoint)
    problem = _silence(url)
    if problem is None:
        return DoctorCheck("telemetry", DoctorVerdict.OK, redact_text(url))
    finding = f"{redact_text(url)} does not answer: {problem}"
    return DoctorCheck(
        "telemetry", DoctorVerdict.WARN, finding, "start the collector; traces are lost until then"
    )


def engine(container: Container, *, has_database: bool = True, find: Find = find_spec) -> DoctorCheck:
    """Check that the job engine answers and that workers take jobs from the shared queues."""
    name = container.settings.jobs.engine
    problem = _temporal(container, find) if name == "temporal" else None
    if problem is not None:
        return problem
    if not has_database:
        return DoctorCheck("engine", DoctorVerdict.OK, name)
    now = container.clock.now()
    heard = [worker for worker in container.worker_registry.list() if worker.state != "gone"]
    living = [worker for worker in heard if now - worker.seen_at <= _LATELY]
    waiting = [job for job in _shared(container, JobState.QUEUED) if job.not_before <= now]
    finding = f"{name}; {counted(len(living), 'worker')} seen in the last minute"
    if waiting and not living:
        remedy = "start a worker with `agents worker` or `agents serve`"
        return DoctorCheck(
            "engine", DoctorVerdict.WARN, f"{finding}; {counted(len(waiting), 'job')} queued", remedy
        )
    if name != "embedded":
        return DoctorCheck("engine", DoctorVerdict.OK, finding)  # Temporal handles silent workers itself
    patience = timedelta(seconds=_SILENT_LEASES * container.settings.worker.lease_seconds)
    stuck = [job for job in _shared(container, JobState.RUNNING) if now - job.updated_at > patience]
    if stuck:
        finding += f"; {counted(len(stuck), 'job')} without a heartbeat: "
        finding += ", ".join(job.id for job in stuck[:5])
        return DoctorCheck(
            "engine",
            DoctorVerdict.WARN,
            finding,
            "start a worker with `agents worker`: it takes over these jobs",
        )
    return DoctorCheck("engine", DoctorVerdict.OK, finding)


def _shared(container: Container, state: JobState) -> list[Job]:
    return [job for job in container.job_table.list(states=[state], limit=_PAGE) if job.queue]


def _temporal(container: Container, find: Find) -> DoctorCheck | None:
    """Return the problem with Temporal, or None if it answers and knows the namespace."""
    settings = container.settings.jobs
    connection = container.temporal
    assert connection is not None  # jobs.engine is temporal

    async def described(client: Client) -> None:
        from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest

        asked = DescribeNamespaceRequest(namespace=settings.temporal_namespace)
        await client.workflow_service.describe_namespace(asked, timeout=timedelta(seconds=_SECONDS))

    if find("temporalio") is None:
        return DoctorCheck(
            "engine", DoctorVerdict.FAIL, "temporal needs its SDK", install_command("temporal")
        )
    # The port first: the SDK retries for a long time.
    problem = _refusal(settings.temporal_address)
    if problem is None:
        try:
            connection.run(described)
            return None
        except EngineUnavailable as error:
            problem = error.problem
    finding = f"temporal at {settings.temporal_address}, namespace {settings.temporal_namespace}: {problem}"
    remedy = "start Temporal, or correct jobs.temporal_address and jobs.temporal_namespace"
    return DoctorCheck("engine", DoctorVerdict.FAIL, redact_text(finding), remedy)


def _refusal(address: str) -> str | None:
    import socket

    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS):
            return None
    except (OSError, ValueError) as error:
        return redact_text(str(error))


def _silence(url: str) -> str | None:
    """Return why the URL does not answer, or None if there was any response."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    try:
        with closing(kind(parts.hostname or "", parts.port, timeout=_SECONDS)) as connection:
            connection.request("GET", parts.path or "/")
            connection.getresponse()
    except (OSError, HTTPException, ValueError) as error:
        return redact_text(str(error)) or type(error).__name__
    return None
