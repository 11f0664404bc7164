"""LangGraph's channel for nodes that wait for several others, kept as a list: checkpoints are plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from langgraph.channels.named_barrier_value import NamedBarrierValue

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

__all__ = ["PlainBarrier", "with_plain_barriers"]


class PlainBarrier(NamedBarrierValue[str]):
    """Available when all of `names` have arrived, as its parent is."""

    __slots__ = ()

    def checkpoint(self) -> Any:
        return sorted(self.seen)

    def from_checkpoint(self, checkpoint: Any) -> Self:
        kept = set(checkpoint) if isinstance(checkpoint, list) else checkpoint
        return super().from_checkpoint(kept)


def with_plain_barriers(
    graph: CompiledStateGraph[Any, Any, Any, Any],
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The same graph; its edges from several nodes at once keep lists."""
    for name, channel in graph.channels.items():
        if type(channel) is NamedBarrierValue:
            plain = PlainBarrier(channel.typ, channel.names)
            plain.key = name
            graph.channels[name] = plain
    return graph
