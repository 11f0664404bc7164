"""The node that asks a person: LangGraph's interrupt ends the run, and the answer goes on with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from cleveragents.actors.graph.run_context import NodePlace, RunContext, path_in
from cleveragents.actors.graph.state import State
from cleveragents.actors.graph.templates import filled_text
from cleveragents.actors.model.actor import Actor, HumanNode
from cleveragents.actors.model.progress import ProgressKind
from cleveragents.actors.ports import Question

__all__ = ["HumanStep", "asked_by", "question_of"]


class HumanStep:
    """The node of an actor that asks. It runs from the top again with the answer, so it has no effects."""

    def __init__(self, actor: Actor, node: HumanNode) -> None:
        self._actor = actor
        self._node = node

    async def ask(self, state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """The answer; the first time it does not return."""
        path = path_in(state, self._node.name)
        NodePlace(runtime.context, self._actor.name, path).tell(ProgressKind.NODE)
        text = filled_text(self._node.question, state)
        answer = interrupt({"node": path, "text": text, "choices": list(self._node.choices)})
        return {self._node.output: answer}


def question_of(asked: Mapping[str, Any]) -> Question:
    """What `asked_by` made of an interrupt."""
    return Question(str(asked["id"]), str(asked["node"]), str(asked["text"]), tuple(asked["choices"]))


def asked_by(interrupts: Sequence[Any]) -> dict[str, Any] | None:
    """The first question, as a message carries it; None where nothing is asked."""
    return {"id": interrupts[0].id, **interrupts[0].value} if interrupts else None
