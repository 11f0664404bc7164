"""The context that the nodes of one run share: the host, progress, permanent call names, deadlines and the
account.

The account tracks spending while the run is in progress: parallel branches share the remaining limit, and a
subgraph also spends from all actors above it. The state stores the same sums for a resumed run, but later: it
includes a call when its step has ended, and the calls of a subgraph when the subgraph has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cleveragents.actors.graph.state import ACCOUNT, State
from cleveragents.actors.model.actor import Actor, Progress, ProgressKind
from cleveragents.actors.ports import ActorHost
from cleveragents.core.errors import ActorStopped, DeadlineExceeded, PriceUnknown
from cleveragents.core.tool import ToolSpec
from cleveragents.models.model.attachment import Attachment
from cleveragents.models.model.budget import PICODOLLARS, Spend
from cleveragents.models.model.conversation import Usage
from cleveragents.models.ports import ModelFacts, ModelReply

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

__all__ = [
    "A_STEP",
    "ActorSpending",
    "CallCost",
    "NodeLabel",
    "RunContext",
    "RunSpending",
    "SpendingReservation",
    "path_in",
    "spent_so_far",
    "time_left",
    "within",
    "written",
]


# The deadline of the innermost part with a time limit, which is never later than an outer one.
_ends: ContextVar[float | None] = ContextVar("ends", default=None)

A_STEP = Spend(steps=1)
"""The spend of a tool call."""


class RunSpending:
    """The spending of each actor of a run, by its path of subgraphs.

    `begun` holds the earlier spend of a resumed run. Not thread-safe: it belongs to the loop that runs the
    nodes.
    """

    def __init__(self, begun: Mapping[str, Spend] | None = None) -> None:
        self._begun = begun or {}
        self._spendings: dict[str, ActorSpending] = {}
        self._waiting: list[asyncio.Future[None]] = []

    def actor_spending(self, actor: Actor, state: State) -> ActorSpending:
        """Return the spending of the actor with this state."""
        account = state[ACCOUNT]
        actor_spending = self._spendings.get(account["path"]) or self._opened(actor, account["path"], None)
        actor_spending.spent = _larger(actor_spending.spent, account)
        return actor_spending

    def open_below(self, above: ActorSpending, actor: Actor, path: str) -> None:
        """Open the spending of an actor that runs as a subgraph. Its spending also counts for the actors
        above it.
        """
        self._opened(actor, path, above)

    async def settling(self) -> None:
        """Wait until the next running call ends."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def settled(self) -> None:
        """Wake all callers of `settling`, after a call has ended."""
        woken, self._waiting = self._waiting, []
        for waiting in woken:
            if not waiting.done():
                waiting.set_result(None)

    def _opened(self, actor: Actor, path: str, above: ActorSpending | None) -> ActorSpending:
        actor_spending = ActorSpending(self, actor, above, self._begun.get(path, Spend()))
        self._spendings[path] = actor_spending
        return actor_spending


@dataclass(frozen=True, slots=True, eq=False)
class RunContext:
    """The LangGraph context of all nodes; subgraphs inherit it.

    It belongs to the loop and to one run; a resumed run gets a new context. `models` caches the models that
    may answer, by name. `specs` caches the tools of each list of names: they stay the same throughout a run,
    because a model may call any tool it has been shown. `rooms` holds windows that providers reported to be
    smaller than documented. `stopped` holds nodes that made no progress, and why.
    """

    host: ActorHost
    thread_id: str
    tell: Callable[[Progress], None]
    account: RunSpending = field(default_factory=RunSpending)
    models: dict[str | None, Sequence[ModelFacts]] = field(default_factory=dict)
    specs: dict[tuple[str, ...], Sequence[ToolSpec]] = field(default_factory=dict)
    rooms: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    attachments: Sequence[Attachment] = ()

    async def tools(self, names: Sequence[str]) -> Sequence[ToolSpec]:
        """Return the tools for a node's list of names. Raises the errors of `ActorHost.specs`."""
        key = tuple(names)
        known = self.specs.get(key, None if key else ())
        if known is None:
            # On a thread: listing tools may start their servers.
            known = self.specs[key] = await asyncio.to_thread(self.host.specs, names)
        return known

    def model_key(self, path: str, call: str) -> str:
        """Return the name of a model call within its plan: thread, node and number."""
        return f"{self.thread_id}:{path}.{call}"

    def tool_step(self, path: str, call: str) -> str:
        """Return the name of a tool call within its plan.

        The name starts with the task, as the records of strategies require. In a thread id `plan/phase/task`,
        the task is the third part; further parts follow it in the name.
        """
        parts = self.thread_id.split("/")
        task = parts[2:] or parts[-1:]
        return ".".join((*task, path, call))


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """A node's identity in progress updates."""

    context: RunContext
    actor: str
    path: str

    def ensure_not_stopped(self) -> None:
        """Raise `ActorStopped` if the node made no progress in this run."""
        reason = self.context.stopped.get(self.path)
        if reason is not None:  # guard: a model that learns nothing is stopped
            raise ActorStopped(self.actor, reason)

    def tell(self, kind: ProgressKind, text: str = "", *, failed: bool = False) -> None:
        """Report progress."""
        self.context.tell(Progress(kind, self.actor, self.path, text, failed))

    def tell_call(self, tool: str, arguments: object, shown: str) -> None:
        """Report a tool call; `shown` are the arguments on one line."""
        text = f"{tool} {shown}"
        told = Progress(ProgressKind.TOOL, self.actor, self.path, text, tool=tool, arguments=arguments)
        self.context.tell(told)


def path_in(state: State, node: str) -> str:
    """Return the node's path: the names of its subgraphs and its own, as in `a.b`."""
    above = state[ACCOUNT]["path"]
    return f"{above}.{node}" if above else node


@asynccontextmanager
async def within(seconds: float | None, what: str) -> AsyncIterator[None]:
    """Cancel the block after `seconds` and, after the block has cleaned up, raise `DeadlineExceeded`."""
    around = _ends.get()
    ends = None if seconds is None else time.monotonic() + seconds
    here = _ends.set(min((end for end in (around, ends) if end is not None), default=None))
    try:
        async with asyncio.timeout(seconds) as timeout:
            yield
    except TimeoutError as late:
        if (
            seconds is None or not timeout.expired()
        ):  # guard: a timeout raised inside the block is not this deadline
            raise
        raise DeadlineExceeded(what, seconds) from late
    finally:
        _ends.reset(here)


def time_left() -> Callable[[], float] | None:
    """Return a function that gives the seconds left for the current part of the run, on any thread; None if
    there is no limit. A thread is not cancelled with its task, so its code must check the time itself.
    """
    ends = _ends.get()
    return None if ends is None else lambda: ends - time.monotonic()


class SpendingReservation:
    """A reservation for one call.

    It counts as the worst case while the call runs, and afterwards as `spent`. If the call fails, it counts
    as nothing. Entering waits while other calls of the run hold the required amount, and raises
    `ActorStopped` if the call might exceed a limit.

    Not thread-safe: it belongs to the loop. It is a class because a generator-based context manager would be
    slower.
    """

    __slots__ = ("_account", "_chain", "_worst", "spent")

    def __init__(self, account: RunSpending, chain: tuple[ActorSpending, ...], worst: Spend) -> None:
        self._account = account
        self._chain = chain
        self._worst = worst
        self.spent = worst

    async def __aenter__(self) -> SpendingReservation:
        while not all(actor_spending.holds(self._worst) for actor_spending in self._chain):
            await self._account.settling()
        for actor_spending in self._chain:
            actor_spending.reserved_sum = actor_spending.reserved_sum + self._worst
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor_spending in self._chain:
            if kind is None:
                actor_spending.spent = actor_spending.spent + self.spent
            actor_spending.reserved_sum = _less(actor_spending.reserved_sum, self._worst)
        self._account.settled()


class ActorSpending:
    """The spend of one actor within its limits, and the amount reserved for its running calls, including
    those of its subgraphs.

    Not thread-safe: it belongs to the loop. Cancel safety: a cancelled call returns its reservation.
    """

    def __init__(self, account: RunSpending, actor: Actor, above: ActorSpending | None, spent: Spend) -> None:
        self._account = account
        self._actor = actor
        self._chain: tuple[ActorSpending, ...] = (self,) if above is None else (self, *above._chain)
        self.reserved_sum = Spend()
        self.spent = spent

    @property
    def counts_money(self) -> bool:
        """Whether a limit on money applies to this actor or to an actor above it."""
        return any(actor_spending._actor.limits.usd is not None for actor_spending in self._chain)

    def ensure_a_step_is_left(self) -> None:
        """Raise `ActorStopped` if the limit on calls is reached."""
        for actor_spending in self._chain:
            actor_spending._ensure_within(Spend(steps=1))

    def reserved(self, worst: Spend) -> SpendingReservation:
        """Return a reservation for one call, to be entered."""
        return SpendingReservation(self._account, self._chain, worst)

    def holds(self, worst: Spend) -> bool:
        """Return whether a call of this worst case fits the limits now. A call that does not fit now may fit
        when other calls have ended. Raises `ActorStopped` if the call can never fit.
        """
        self._ensure_within(worst)
        return self._broken(self.spent + self.reserved_sum + worst) is None

    def _ensure_within(self, more: Spend) -> None:
        broken = self._broken(self.spent + more)
        if broken is not None:
            raise ActorStopped(self._actor.name, broken)

    def _broken(self, total: Spend) -> str | None:
        limits = self._actor.limits
        if total.steps > limits.steps:  # guard: bounds every loop
            return f"the actor reached its limit of {limits.steps} model and tool calls"
        if limits.tokens is not None and total.tokens > limits.tokens:  # guard: tokens
            return f"the next call might exceed its limit of {limits.tokens} tokens"
        if limits.usd is not None and total.picodollars > limits.usd * PICODOLLARS:  # guard: money
            return f"the next call might exceed its limit of ${limits.usd:g}"
        return None


async def spent_so_far(saver: BaseCheckpointSaver[Any], thread_id: str) -> dict[str, Spend]:
    """Return the spend of an interrupted run by path: the sums in its states, the writes of unfinished steps,
    and the spend of unfinished subgraphs, added to the actors above them.
    """
    newest: dict[str, CheckpointTuple] = {}
    async for kept in saver.alist({"configurable": {"thread_id": thread_id}}):
        newest.setdefault(kept.config["configurable"]["checkpoint_ns"], kept)
    sums: dict[str, Spend] = {}
    for namespace in sorted(newest, key=lambda name: name.count("|"), reverse=True):
        kept = newest[namespace]
        total = sums.get(namespace, Spend()) + _spend(kept.checkpoint["channel_values"].get(ACCOUNT, {}))
        for _, channel, written in kept.pending_writes or ():
            if channel == ACCOUNT:
                total = total + _spend(written)
        sums[namespace] = total
        above = namespace.rpartition("|")[0]
        if namespace and _goes_on(kept, newest.get(above), above):
            sums[above] = sums.get(above, Spend()) + total
    states = {name: kept.checkpoint["channel_values"].get(ACCOUNT) for name, kept in newest.items()}
    return {account["path"]: sums[name] for name, account in states.items() if account is not None}


def _goes_on(kept: CheckpointTuple, above: CheckpointTuple | None, namespace: str) -> bool:
    """Return whether a subgraph is unfinished: it belongs to the current step of the graph above and has not
    reported its spend to that graph.
    """
    if above is None:
        return False
    if kept.metadata.get("parents", {}).get(namespace) != above.checkpoint["id"]:
        return False
    task_id = kept.config["configurable"]["checkpoint_ns"].rpartition(":")[2]
    # guard: an ended subgraph is counted once
    return not any(task == task_id and channel == ACCOUNT for task, channel, _ in above.pending_writes or ())


def _spend(account: Mapping[str, Any]) -> Spend:
    return Spend(account.get("money", 0), account.get("tokens", 0), account.get("steps", 0))


def _larger(spent: Spend, account: Mapping[str, Any]) -> Spend:
    """Return the larger of the known spend and the spend in the state's account."""
    money, tokens, steps = account["money"], account["tokens"], account["steps"]
    if money <= spent.picodollars and tokens <= spent.tokens and steps <= spent.steps:
        return spent
    return Spend(max(spent.picodollars, money), max(spent.tokens, tokens), max(spent.steps, steps))


def _less(one: Spend, other: Spend) -> Spend:
    return Spend(one.picodollars - other.picodollars, one.tokens - other.tokens, one.steps - other.steps)


@dataclass(frozen=True, slots=True)
class CallCost:
    """The cost of one model call.

    `models` are the models that may answer: the requested model and its fallback.
    """

    models: Sequence[ModelFacts]
    usage: Usage

    def worst(self, *, priced: bool) -> Spend:
        """Return the worst case over all models. Raises `PriceUnknown` if `priced` and a price is missing."""
        unpriced = [facts for facts in self.models if facts.price is None]
        if priced and unpriced:  # guard: a limit that cannot be enforced is refused
            raise PriceUnknown(unpriced[0].name)
        # guard: the most expensive model may be the one that answers
        money = max(0 if facts.price is None else facts.price.worst(self.usage) for facts in self.models)
        return Spend(money, self.usage.total, 1)

    def of(self, reply: ModelReply) -> Spend:
        """Return the cost at the price of the model that answered; the worst case if usage
        was not reported.
        """
        usage = reply.usage or self.usage
        answering = [facts for facts in self.models if facts.name == reply.model] or self.models
        price = answering[0].price
        cost = 0 if price is None else price.worst(usage) if reply.usage is None else price.of(usage)
        return Spend(cost, usage.total, 1)


def written(spent: Spend) -> dict[str, Any]:
    """Return the spend as an update of the account in the state."""
    return {ACCOUNT: {"steps": spent.steps, "tokens": spent.tokens, "money": spent.picodollars}}
