"""LangGraph's nodes without what only tracers need.

LangGraph runs the function of a node, and then what writes its result, as a chain of LangChain's: it tells
callbacks of each part, keeps a tree of them, and gives the function a task of its own. Nobody listens here:
what a run lets be seen goes to its host. Without it a step of a graph costs a seventh less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.runnables.config import var_child_runnable_config

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.graph.state import CompiledStateGraph

__all__ = ["PlainSteps", "with_plain_steps"]


class PlainSteps:
    """What a node does, one thing after the other, in the task that runs the node. Of a runnable it has what
    LangGraph asks for on a loop."""

    def __init__(self, steps: Sequence[Runnable[Any, Any]]) -> None:
        self._first, *self._others = steps

    async def ainvoke(self, given: Any, config: RunnableConfig) -> Any:
        # An interrupt and a graph below ask for it there.
        before = var_child_runnable_config.get()
        var_child_runnable_config.set(config)
        try:
            said = await self._first.ainvoke(given, config)
        finally:
            # Not by a token: a run that is torn down may be so from elsewhere.
            var_child_runnable_config.set(before)
        for step in self._others:
            said = await step.ainvoke(said, config)
        return said


def with_plain_steps(
    graph: CompiledStateGraph[Any, Any, Any, Any],
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The same graph, whose nodes are run plainly."""
    for node in graph.nodes.values():
        steps = getattr(node.node, "steps", None)
        if steps is not None:
            vars(node)["node"] = PlainSteps(steps)
    return graph
