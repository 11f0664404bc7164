"""What the nodes of one run share: the host, who hears of progress, and how calls are named for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cleveragents.actors.graph.run_account import RunAccount
from cleveragents.actors.graph.state import ACCOUNT, State
from cleveragents.actors.model.progress import Progress, ProgressKind
from cleveragents.actors.ports import ActorHost
from cleveragents.core.errors import ActorStopped
from cleveragents.core.tool import ToolSpec
from cleveragents.models.ports import ModelFacts

__all__ = ["NodePlace", "RunContext", "path_in"]


@dataclass(frozen=True, slots=True, eq=False)
class RunContext:
    """Given to every node as LangGraph's context; subgraphs inherit it. It is the loop's own, and ends with
    the run: a run that is resumed begins with a new one.

    `models` are those that may answer for a name, as the host said; `specs` the tools that a list of names
    means, the same throughout a run, because a model may ask for what it was told of; `rooms` what a provider
    said its model reads, where that is less than is known of it; `stopped` the nodes that got nowhere, and
    why.
    """

    host: ActorHost
    thread_id: str
    tell: Callable[[Progress], None]
    account: RunAccount = field(default_factory=RunAccount)
    models: dict[str | None, Sequence[ModelFacts]] = field(default_factory=dict)
    specs: dict[tuple[str, ...], Sequence[ToolSpec]] = field(default_factory=dict)
    rooms: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)

    async def tools(self, names: Sequence[str]) -> Sequence[ToolSpec]:
        """Those that a node's list of names means. What `ActorHost.specs` raises."""
        key = tuple(names)
        known = self.specs.get(key, None if key else ())
        if known is None:
            # On a thread: tools may have to be started before they can be listed.
            known = self.specs[key] = await asyncio.to_thread(self.host.specs, names)
        return known

    def model_key(self, path: str, call: str) -> str:
        """Names a model call within its plan: the thread, the node, which one."""
        return f"{self.thread_id}:{path}.{call}"

    def tool_step(self, path: str, call: str) -> str:
        """Names a tool call within its plan: its task first, as records of strategies want it.

        Of a thread `plan/phase/task` the task is the third part; whatever follows it stays in the name.
        """
        parts = self.thread_id.split("/")
        task = parts[2:] or parts[-1:]
        return ".".join((*task, path, call))


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A node as progress names it."""

    context: RunContext
    actor: str
    path: str

    def ensure_not_stopped(self) -> None:
        """`ActorStopped` when the node got nowhere in this run."""
        reason = self.context.stopped.get(self.path)
        if reason is not None:  # guard: a model that learns nothing is stopped
            raise ActorStopped(self.actor, reason)

    def tell(self, kind: ProgressKind, text: str = "", *, failed: bool = False) -> None:
        """Lets it be seen."""
        self.context.tell(Progress(kind, self.actor, self.path, text, failed))


def path_in(state: State, node: str) -> str:
    """`a.b`: the node, behind the subgraphs that lead to it."""
    above = state[ACCOUNT]["path"]
    return f"{above}.{node}" if above else node
