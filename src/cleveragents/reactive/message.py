"""What a stream carries: a request to run a graph, or how that run ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from cleveragents.errors import CleverAgentsError

__all__ = ["MessageKind", "StreamMessage"]


class MessageKind(str, Enum):
    """A request, or the way its run really ended."""

    REQUEST = "request"
    RESULT = "result"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """One message. An answer has the id and the graph of the request it answers.

    `content` is the graph's input or its output; the mapping cannot be changed, its values are the
    graph's own. `thread_id` names the conversation for graphs that were compiled with a checkpointer.
    An answer that is not a result says why in `error`.
    """

    id: str
    graph: str
    content: Mapping[str, object] = field(default_factory=dict)
    kind: MessageKind = MessageKind.REQUEST
    thread_id: str | None = None
    error: CleverAgentsError | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", MappingProxyType(dict(self.content)))

    def result(self, content: Mapping[str, object]) -> StreamMessage:
        """The answer of a run that gave a result."""
        return StreamMessage(self.id, self.graph, content, MessageKind.RESULT, self.thread_id)

    def failure(self, error: CleverAgentsError, kind: MessageKind = MessageKind.ERROR) -> StreamMessage:
        """The answer of a run that gave none; the request's content goes with it, for a retry."""
        return StreamMessage(self.id, self.graph, self.content, kind, self.thread_id, error)
