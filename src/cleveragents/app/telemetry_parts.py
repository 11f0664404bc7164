"""Joins whoever makes traces with the database whose events they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleveragents.config.service_settings import TelemetrySettings
    from cleveragents.core.clock import Clock
    from cleveragents.core.identifiers import IdentifierSource
    from cleveragents.events.request_telemetry import Telemetry
    from cleveragents.storage.database import Database

__all__ = ["TracedDatabase"]


class TracedDatabase:
    """What a database commits becomes traces until this is closed. `ConfigurationError` where the package
    for that is missing."""

    def __init__(
        self, settings: TelemetrySettings, database: Database, identifiers: IdentifierSource, clock: Clock
    ) -> None:
        from cleveragents.contrib.telemetry.otlp import OtlpTelemetry
        from cleveragents.contrib.telemetry.spans import SpanBook
        from cleveragents.jobs.store.sql_job_store import SqlJobStore
        from cleveragents.plans.store.sql_plan_store import SqlPlanStore

        plans, jobs = SqlPlanStore(database, identifiers), SqlJobStore(database, identifiers)

        def plan_of_job(job_id: str) -> str | None:
            plan_id = jobs.get(job_id).payload.get("plan_id")
            return plan_id if isinstance(plan_id, str) else None

        book = SpanBook(lambda plan_id: plans.get(plan_id).root, plan_of_job)
        self.telemetry: Telemetry = OtlpTelemetry(settings, book, clock)
        self._stop_listening: Callable[[], None] = database.add_commit_listener(self.telemetry.heard)

    def close(self) -> None:
        """Hears nothing more, and hands on what it has."""
        self._stop_listening()
        self.telemetry.close()
