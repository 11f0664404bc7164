"""The composition root, which connects adapters to ports.

Each component is built at first use, once, and all are closed in reverse order. No component knows the class
of another; the container passes each constructor its dependencies.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from cleveragents.app.scope import Once, Part, Scope, shared
from cleveragents.config.settings import Settings
from cleveragents.core.clock import SystemClock
from cleveragents.core.faults import FaultPoints, NoFaults
from cleveragents.core.identifiers import UlidSource
from cleveragents.core.text.redaction import KnownSecrets

if TYPE_CHECKING:
    from cleveragents.access.store.sql_project_store import SqlMemberStore, SqlProjectStore
    from cleveragents.access.store.sql_user_store import SqlUserStore
    from cleveragents.actors.bridge.bridge import Graph, RxPyLangGraphBridge
    from cleveragents.actors.runner import BridgeActorRunner
    from cleveragents.app.context_parts import ContextParts
    from cleveragents.app.conversation_parts import ConversationParts
    from cleveragents.app.plan_parts import PlanParts
    from cleveragents.changes.store.sql_changeset_store import SqlChangesetStore
    from cleveragents.config.settings import ModelSettings
    from cleveragents.context.executor import ParallelStrategyExecutor
    from cleveragents.contrib.temporal.connection import TemporalConnection
    from cleveragents.conversations.running_turns import RunningTurns
    from cleveragents.events.anchors.audit_anchors import AuditAnchors
    from cleveragents.events.audit import DurableAuditLog
    from cleveragents.events.reactive import ReactiveEventBus
    from cleveragents.events.request_telemetry import Telemetry
    from cleveragents.events.sink import DurableAuditSink
    from cleveragents.jobs.engine import JobEngine
    from cleveragents.jobs.object_collector import CollectorPause
    from cleveragents.jobs.ports import JobHandler, JobStore
    from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor
    from cleveragents.jobs.store.sql_job_store import SqlJobStore, SqlWorkerRegistry
    from cleveragents.jobs.worker.async_worker import AsyncWorker
    from cleveragents.models.catalogue import ModelCatalogue
    from cleveragents.storage.database import Database
    from cleveragents.storage.sql_idempotency_store import SqlIdempotencyStore

__all__ = ["Container"]


class Container:
    """The components of one process, connected according to the settings. Use it as a context manager.

    `faults` is notified of every durable step of the database, of workers, of plans and of the audit log.
    Secrets that components obtain are added to `secrets`; those of the container itself are dropped when it
    is closed.

    Thread safety:
        Owner: the process, or the test, that made it.
        Lock: `choosing_model` is held while a default model is stored and comes into use. The components have
            the lock of `Scope`.
        Guarantee: any thread may request any component, which is built once. Of two default models that are
            chosen at once, the one that is stored last is the one in use.
    Cancel safety: a choice that fails before it is stored changes nothing.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        faults: FaultPoints | None = None,
        secrets: KnownSecrets | None = None,
    ) -> None:
        self.settings = settings
        self.faults: FaultPoints = faults or NoFaults()
        self.clock = SystemClock()
        self.identifiers = UlidSource()
        self.secrets = secrets or KnownSecrets()
        self.choosing_model = threading.Lock()
        self._scope = Scope("the container")
        self._workers: list[AsyncWorker] = []
        self._actor_runner = Part(self._scope, self._build_actor_runner, self._close_actor_runner)
        if secrets is None:  # dropped last: output of other components while they close is masked
            Part(self._scope, lambda: self.secrets, lambda own: own.forget()).get()

    # The database and its readers.

    @property
    def database(self) -> Database:
        if self.settings.telemetry.endpoint:
            _ = self._traces
        return self._database

    @shared(lambda database: database.close())
    def _database(self) -> Database:
        from cleveragents.events.head import HEAD_NAME
        from cleveragents.storage.database import open_database

        settings = self.settings.database
        database = open_database(
            settings.url,
            durability=settings.durability,
            patience_seconds=settings.busy_timeout_seconds,
            faults=self.faults,
        )
        if not (self._audit_directory(database) / HEAD_NAME).exists():
            try:
                self._audit_log(database).begin()
            except BaseException:
                database.close()
                raise
        return database

    @property
    def telemetry(self) -> Telemetry | None:
        """The trace exporter, if configured. Raises `ConfigurationError` if its package is missing."""
        if not self.settings.telemetry.endpoint:
            return None
        _ = self._traces
        return self._telemetry

    # Built after the database and closed before it, because it queries the database.
    @shared(lambda telemetry: telemetry.close())
    def _telemetry(self) -> Telemetry:
        from cleveragents.contrib.telemetry.otlp import OtlpTelemetry
        from cleveragents.contrib.telemetry.spans import SpanBook
        from cleveragents.core.errors import UnknownPlan
        from cleveragents.jobs.store.sql_job_store import SqlJobStore
        from cleveragents.plans.store.sql_plan_store import SqlPlanStore

        plans = SqlPlanStore(self._database, self.identifiers)
        jobs = SqlJobStore(self._database, self.identifiers)

        def plan_of_job(job_id: str) -> str | None:
            plan_id = jobs.get(job_id).payload.get("plan_id")
            return plan_id if isinstance(plan_id, str) else None

        def root_of(plan_id: str) -> str:
            try:
                return plans.get(plan_id).root
            except UnknownPlan:  # model calls of a conversation have its id, and a trace of their own
                return plan_id

        book = SpanBook(root_of, plan_of_job)
        return OtlpTelemetry(self.settings.telemetry, book, self.clock)

    @shared(lambda stop: stop())
    def _traces(self) -> Callable[[], None]:
        """A commit listener that exports traces."""
        return self._database.add_commit_listener(self._telemetry.heard)

    @shared()
    def changesets(self) -> SqlChangesetStore:
        from cleveragents.changes.store.sql_changeset_store import SqlChangesetStore

        return SqlChangesetStore(self.database, self.identifiers)

    @Once
    def projects(self) -> SqlProjectStore:
        """Projects and resources of the server's users."""
        from cleveragents.access.store.sql_project_store import SqlProjectStore

        return SqlProjectStore(self.database, self.identifiers, self.home)

    @Once
    def members(self) -> SqlMemberStore:
        """Members of projects, with their roles."""
        from cleveragents.access.store.sql_project_store import SqlMemberStore

        return SqlMemberStore(self.database, self.identifiers)

    @Once
    def users(self) -> SqlUserStore:
        """Users of the server, with their tokens and roles."""
        from cleveragents.access.store.sql_user_store import SqlUserStore

        return SqlUserStore(self.database, self.identifiers)

    @Once
    def answers(self) -> SqlIdempotencyStore:
        """Stored responses to requests with an idempotency key."""
        from cleveragents.storage.sql_idempotency_store import SqlIdempotencyStore

        return SqlIdempotencyStore(self.database)

    # Events.

    @shared()
    def audit(self) -> DurableAuditLog:
        """The audit log of all processes."""
        return self._audit_log(self.database)

    def _audit_log(self, database: Database) -> DurableAuditLog:
        from cleveragents.events.audit import DurableAuditLog

        # Only a server database can be shared by several state directories.
        home = None if database.dialect == "sqlite" else self.home
        key_file = self.settings.audit.key_file
        return DurableAuditLog(
            database,
            self._audit_directory(database),
            durability=self.settings.database.durability,
            faults=self.faults,
            home=home,
            key_file=Path(key_file) if key_file else None,
        )

    def _audit_directory(self, database: Database) -> Path:
        """The directory of the audit log's head and key. Each database has its own directory, so that one log
        cannot pass for another.
        """
        if self.settings.database.url == f"sqlite:///{self.state_directory / 'state.db'}":
            return self.state_directory
        digest = sha256(database.location.encode()).hexdigest()[:16]
        return self.state_directory / "audit" / digest

    @Once
    def anchors(self) -> AuditAnchors:
        """The anchors of the audit log outside the machine."""
        from cleveragents.events.anchors.audit_anchors import AuditAnchors
        from cleveragents.sandboxes.orphans import MIRRORS

        mirrors = self.state_directory / MIRRORS
        directory = self._audit_directory(self.database)
        return AuditAnchors(self.audit, self.settings.audit, directory, mirrors, self.clock)

    @property
    def bus(self) -> ReactiveEventBus:
        """The event bus of this process: emitted events are stored, and committed events appear on it."""
        _ = self._relay
        return self._bus

    @shared(lambda sink: sink.close())
    def _sink(self) -> DurableAuditSink:
        from cleveragents.events.sink import DurableAuditSink

        return DurableAuditSink(self.audit, bound=self.settings.events.queue_bound)

    @shared(lambda bus: bus.close())
    def _bus(self) -> ReactiveEventBus:
        from cleveragents.events.reactive import ReactiveEventBus

        return ReactiveEventBus(sink=self._sink)

    @shared(lambda stop: stop())
    def _relay(self) -> Callable[[], None]:
        # A separate component, built after the bus and therefore removed before the bus is closed.
        return self.database.add_commit_listener(self._bus.relay)

    # Jobs and workers.

    @property
    def jobs(self) -> JobStore:
        """The job store, for any engine."""
        from cleveragents.app.engine_parts import jobs_for

        return jobs_for(self)

    @shared()
    def job_table(self) -> SqlJobStore:
        from cleveragents.jobs.store.sql_job_store import SqlJobStore

        return SqlJobStore(self.database, self.identifiers)

    @shared(lambda connection: connection and connection.close())
    def temporal(self) -> TemporalConnection | None:
        """The connection to Temporal, if that is the job engine."""
        from cleveragents.app.engine_parts import temporal_for

        return temporal_for(self.settings)

    @shared(lambda engine: engine.close())
    def engine(self) -> JobEngine:
        """The engine of shared queues. Raises `ConfigurationError`."""
        from cleveragents.app.engine_parts import engine_for

        return engine_for(self)

    @shared()
    def processes(self) -> PsutilProcessSupervisor:
        from cleveragents.jobs.process.supervisor import PsutilProcessSupervisor

        return PsutilProcessSupervisor()

    @Once
    def worker_registry(self) -> SqlWorkerRegistry:
        """The registry of workers on all machines."""
        from cleveragents.jobs.store.sql_job_store import SqlWorkerRegistry

        return SqlWorkerRegistry(self.database, self.identifiers, self.clock)

    def worker(
        self,
        handlers: Mapping[str, JobHandler],
        *,
        name: str,
        concurrency: int | None = None,
        queues: tuple[str, ...] = (),
    ) -> AsyncWorker:
        """Return a worker for these kinds of jobs and these shared queues.

        The caller starts it; it is closed with the container. Without `concurrency`, the settings determine
        how many jobs it runs in parallel.
        """

        def build() -> AsyncWorker:
            from cleveragents.app.engine_parts import worker_for

            _ = self._relay
            at_once = concurrency or self.settings.worker.concurrency
            worker = worker_for(self, handlers, name, at_once, queues)
            self._workers.append(worker)
            return worker

        _ = self._calm
        return Part(self._scope, build, lambda worker: worker.close()).get()

    @shared(lambda calm: calm.release_hold())
    def _calm(self) -> CollectorPause:
        from cleveragents.jobs.object_collector import COLLECTOR

        COLLECTOR.hold()
        return COLLECTOR

    # Context, models, actors and plans.

    @shared(lambda executor: executor.close())
    def strategies(self) -> ParallelStrategyExecutor:
        """The executor of context strategies, with the breaker shared by this process."""
        from cleveragents.context.executor import CircuitBreaker, ParallelStrategyExecutor
        from cleveragents.core.circuit_breaker import BreakerEvents

        # The bus is built here, because a transition is announced within a caller's deadline.
        announce = BreakerEvents(self.bus, self.clock, self.identifiers)
        breaker = CircuitBreaker(clock=self.clock.monotonic, on_transition=announce)
        return ParallelStrategyExecutor(breaker)

    # Tasks that still run in the next two are abandoned, not awaited.

    @shared(lambda executor: executor.close(0.0))
    def quiet_strategies(self) -> ParallelStrategyExecutor:
        """A separate executor whose breaker emits no events, so that neither bus nor database is built."""
        from cleveragents.context.executor import ParallelStrategyExecutor

        return ParallelStrategyExecutor(clock=self.clock.monotonic)

    @shared(lambda executor: executor.close(0.0))
    def context_steps(self) -> ParallelStrategyExecutor:
        """The executor of the context pipeline's own steps.

        Its breaker never opens, because the same steps serve every repository: a failure in one repository
        says nothing about others.
        """
        from cleveragents.context.executor import CircuitBreaker, ParallelStrategyExecutor

        breaker = CircuitBreaker(failure_threshold=sys.maxsize, clock=self.clock.monotonic)
        return ParallelStrategyExecutor(breaker, clock=self.clock.monotonic)

    @shared()
    def models(self) -> ModelCatalogue:
        """The language models, behind the limits and breakers shared by all plans of this process."""
        from cleveragents.models.catalogue import ModelCatalogue

        return ModelCatalogue(
            self.settings.models, secrets=self.secrets, modes=self.state_directory / "tool-calls.json"
        )

    def use_models(self, settings: ModelSettings) -> None:
        """Use other settings for the models that are opened from now on."""
        self.models.use(settings)
        self.settings = replace(self.settings, models=settings)

    @property
    def actor_runner(self) -> BridgeActorRunner:
        """The runner of actor graphs, on one loop for all plans of this process."""
        return self._actor_runner.get()

    def _build_actor_runner(self) -> BridgeActorRunner:
        from cleveragents.actors.bridge.graph_run import RunEvents
        from cleveragents.actors.runner import BridgeActorRunner
        from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore

        events = RunEvents(self.bus, self.identifiers, self.clock)
        return BridgeActorRunner(SqlCheckpointStore(self.database), events=events)

    def _close_actor_runner(self, runner: BridgeActorRunner) -> None:
        # A job builds it, after the worker; a run that lost it would look like a failed one.
        for worker in self._workers:
            worker.close()
        runner.close()

    def bridge(self, graphs: Mapping[str, Graph]) -> RxPyLangGraphBridge:
        """Return a bridge to these graphs. It publishes events about their runs and is closed with the
        container.
        """
        from cleveragents.actors.bridge.bridge import RxPyLangGraphBridge
        from cleveragents.actors.bridge.graph_run import RunEvents

        def build() -> RxPyLangGraphBridge:
            return RxPyLangGraphBridge(graphs, events=RunEvents(self.bus, self.identifiers, self.clock))

        return Part(self._scope, build, lambda bridge: bridge.close()).get()

    @Once
    def context_parts(self) -> ContextParts:
        """The components of the context pipeline."""
        from cleveragents.app.context_parts import ContextParts

        return ContextParts(self)

    @Once
    def plan_parts(self) -> PlanParts:
        """The components of the plan engine."""
        from cleveragents.app.plan_parts import PlanParts

        return PlanParts(self)

    @Once
    def conversations(self) -> ConversationParts:
        """The components of conversations."""
        from cleveragents.app.conversation_parts import ConversationParts

        return ConversationParts(self)

    @shared(lambda turns: turns.close())
    def running_turns(self) -> RunningTurns:
        """The turns of conversations that this process runs."""
        from cleveragents.conversations.running_turns import RunningTurns

        _ = self.actor_runner  # built before it, and therefore closed after all turns have ended
        parts = self.conversations
        return RunningTurns(parts.store, parts.output_of, self.clock, parts.terms)

    @property
    def state_directory(self) -> Path:
        return Path(self.settings.state.directory)

    @cached_property
    def home(self) -> str:
        """The name that identifies the state directory to other users of the database.

        Read once, so the name stays the same for the whole process, whatever happens to the files.
        """
        from cleveragents.storage.home import home_id

        return home_id(self.state_directory)

    def close(self) -> None:
        """Close every component that was built, in reverse order."""
        self._scope.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
