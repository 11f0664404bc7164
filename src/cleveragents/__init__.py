"""CleverAgents: many AI agent plans in parallel on real repositories, without losing work.

    from cleveragents import Limits, PlanRequest, connect

    with connect() as client:
        plan = client.plans.create(PlanRequest(goal="Add a --json flag", limits=Limits(usd=0.50)))
        for piece in client.plans.watch(plan.id):
            print(piece.text, end="")
        print(client.plans.diff(plan.id))
        client.plans.apply(plan.id)

The names below are loaded on first use, so that `import cleveragents` stays fast.
"""

from cleveragents import moved

TYPE_CHECKING = (
    False  # recognized by type checkers; importing `typing` would take longer than everything else here
)

if TYPE_CHECKING:
    from cleveragents.actors.streams.message import StreamMessage
    from cleveragents.api.async_client import AsyncClient, connect_async
    from cleveragents.api.client import Client, HttpClient, LocalClient, connect
    from cleveragents.api.conversations.client import Attachment, ConversationRequest
    from cleveragents.api.plans.request import Limits, PlanRequest
    from cleveragents.app.engine_parts import open_worker
    from cleveragents.application.services.acms_pipeline import CircuitBreaker, ParallelStrategyExecutor
    from cleveragents.application.services.async_worker import AsyncWorker, CancellationToken
    from cleveragents.application.services.plan_execution_context import PlanExecutionContext
    from cleveragents.context.model.context import ContextFragment, ContextRequest
    from cleveragents.core.change import ChangeEntry, ChangeKind
    from cleveragents.core.errors import CleverAgentsError
    from cleveragents.core.event import DomainEvent, EventType
    from cleveragents.infrastructure.events.reactive import ReactiveEventBus
    from cleveragents.jobs.model.job import NewJob
    from cleveragents.jobs.ports import JobHandler
    from cleveragents.langgraph.bridge import RxPyLangGraphBridge

__version__ = "0.1.0"

_NAMES = {
    "AsyncClient": "api.async_client",
    "connect_async": "api.async_client",
    "Client": "api.client",
    "HttpClient": "api.client",
    "LocalClient": "api.client",
    "connect": "api.client",
    "Attachment": "api.conversations.client",
    "ConversationRequest": "api.conversations.client",
    "Limits": "api.plans.request",
    "PlanRequest": "api.plans.request",
    "CleverAgentsError": "core.errors",
    "AsyncWorker": "application.services.async_worker",
    "CancellationToken": "application.services.async_worker",
    "CircuitBreaker": "application.services.acms_pipeline",
    "ParallelStrategyExecutor": "application.services.acms_pipeline",
    "PlanExecutionContext": "application.services.plan_execution_context",
    "ReactiveEventBus": "infrastructure.events.reactive",
    "RxPyLangGraphBridge": "langgraph.bridge",
    "ChangeEntry": "core.change",
    "ChangeKind": "core.change",
    "ContextFragment": "context.model.context",
    "ContextRequest": "context.model.context",
    "DomainEvent": "core.event",
    "EventType": "core.event",
    "JobHandler": "jobs.ports",
    "NewJob": "jobs.model.job",
    "StreamMessage": "actors.streams.message",
    "open_worker": "app.engine_parts",
}
"""The module of each public name."""

__all__ = [
    "AsyncClient",
    "AsyncWorker",
    "Attachment",
    "CancellationToken",
    "ChangeEntry",
    "ChangeKind",
    "CircuitBreaker",
    "CleverAgentsError",
    "Client",
    "ContextFragment",
    "ContextRequest",
    "ConversationRequest",
    "DomainEvent",
    "EventType",
    "HttpClient",
    "JobHandler",
    "Limits",
    "LocalClient",
    "NewJob",
    "ParallelStrategyExecutor",
    "PlanExecutionContext",
    "PlanRequest",
    "ReactiveEventBus",
    "RxPyLangGraphBridge",
    "StreamMessage",
    "__version__",
    "connect",
    "connect_async",
    "open_worker",
]

moved.install()


def __getattr__(name: str) -> object:
    place = _NAMES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{place}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
