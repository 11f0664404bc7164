"""What the nodes of one run share: the host, who hears of progress, and how calls are named for good.

Time for a part of a run, after which it is cancelled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from cleveragents.actors.graph.run_account import RunAccount
from cleveragents.actors.graph.state import ACCOUNT, State
from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.actors.ports import ActorHost
from cleveragents.core.errors import ActorStopped, DeadlineExceeded
from cleveragents.core.tool import ToolSpec
from cleveragents.models.ports import ModelFacts

__all__ = ["NodePlace", "RunContext", "path_in", "time_left", "within"]


# Of the innermost part with a time, which is no later than that of any around it.
_ends: ContextVar[float | None] = ContextVar("ends", default=None)


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


@asynccontextmanager
async def within(seconds: float | None, what: str) -> AsyncIterator[None]:
    """`DeadlineExceeded` when the block has not ended in time; by then it was cancelled and cleaned up."""
    around = _ends.get()
    ends = None if seconds is None else time.monotonic() + seconds
    here = _ends.set(min((end for end in (around, ends) if end is not None), default=None))
    try:
        async with asyncio.timeout(seconds) as timeout:
            yield
    except TimeoutError as late:
        if seconds is None or not timeout.expired():  # guard: somebody else's timeout is none of ours
            raise
        raise DeadlineExceeded(what, seconds) from late
    finally:
        _ends.reset(here)


def time_left() -> Callable[[], float] | None:
    """Says, on any thread, how many seconds the part of the run has left that this is called in; None where
    it has no end. A thread is not cancelled with its task: it has to look for itself."""
    ends = _ends.get()
    return None if ends is None else lambda: ends - time.monotonic()
