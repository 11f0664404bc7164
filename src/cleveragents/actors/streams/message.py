"""What a stream carries: a request to run a graph, what is seen of that run, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from cleveragents.actors.model.progress import Progress, ProgressKind
from cleveragents.core.errors import CleverAgentsError

__all__ = ["ANSWERS", "MessageKind", "StreamMessage"]


class MessageKind(str, Enum):
    """A request, something seen of its run, or the way the run really ended."""

    REQUEST = "request"
    RESULT = "result"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    NODE = ProgressKind.NODE.value
    THINKING = ProgressKind.THINKING.value
    PIECE = ProgressKind.PIECE.value
    THOUGHT = ProgressKind.THOUGHT.value
    TOOL = ProgressKind.TOOL.value
    TOOL_DONE = ProgressKind.TOOL_DONE.value


ANSWERS = frozenset({MessageKind.RESULT, MessageKind.ERROR, MessageKind.TIMEOUT, MessageKind.CANCELLED})
"""One of these ends what a request began."""


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """One message. Whatever comes of a request has its id and its graph.

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

    def seen(self, progress: Progress) -> StreamMessage:
        """Something seen of the run that this request began."""
        content = {
            "actor": progress.actor,
            "node": progress.node,
            "text": progress.text,
            "failed": progress.failed,
        }
        return StreamMessage(self.id, self.graph, content, MessageKind(progress.kind.value), self.thread_id)

    def progress(self) -> Progress:
        """What `seen` was given. `ValueError` when this is a request or an answer."""
        content = self.content
        return Progress(
            ProgressKind(self.kind.value),
            actor=str(content["actor"]),
            node=str(content["node"]),
            text=str(content["text"]),
            failed=bool(content["failed"]),
        )
