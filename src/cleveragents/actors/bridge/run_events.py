"""The facts about graph runs, published as events."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from cleveragents.actors.streams.message import MessageKind, StreamMessage
from cleveragents.core.clock import Clock
from cleveragents.core.errors import QueueFull
from cleveragents.core.event import DomainEvent, EventType
from cleveragents.core.event_ports import EventPublisher
from cleveragents.core.identifiers import IdentifierSource

__all__ = ["RunEvents"]

log = structlog.get_logger()

_ENDINGS = {
    MessageKind.RESULT: EventType.GRAPH_RUN_SUCCEEDED,
    MessageKind.ERROR: EventType.GRAPH_RUN_FAILED,
    MessageKind.TIMEOUT: EventType.GRAPH_RUN_FAILED,
    MessageKind.CANCELLED: EventType.GRAPH_RUN_CANCELLED,
}


@dataclass(frozen=True, slots=True)
class RunEvents:
    """Where runs are announced, from the loop: without ever waiting for room on the bus.

    An event that the publisher refuses is lost, which is logged, and costs no run its answer; a bus without
    room counts it as refused.
    An event names the graph, the message and the class of an error, never contents: they may hold secrets.
    """

    publisher: EventPublisher
    identifiers: IdentifierSource
    clock: Clock

    def started(self, run_id: str, request: StreamMessage) -> None:
        """The run left the queue."""
        self._emit(EventType.GRAPH_RUN_STARTED, run_id, request)

    def ended(self, run_id: str, answer: StreamMessage) -> None:
        """The run is over, in the way that the answer says."""
        self._emit(_ENDINGS[answer.kind], run_id, answer)

    def _emit(self, event_type: EventType, run_id: str, message: StreamMessage) -> None:
        payload = {"graph": message.graph, "message_id": message.id}
        if message.error is not None:
            payload["error"] = type(message.error).__name__
        try:
            event = DomainEvent(
                event_type=event_type,
                subject=run_id,
                event_id=self.identifiers.new(),
                occurred_at=self.clock.now(),
                payload=payload,
            )
            self.publisher.emit(event, wait=False)
        except QueueFull as full:  # not worth a traceback: it comes in crowds
            log.error("graph.event_lost", event_type=event_type.value, run_id=run_id, error=str(full))
        except Exception:
            log.exception("graph.event_lost", event_type=event_type.value, run_id=run_id)
