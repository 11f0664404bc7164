"""What the nodes of one run share: the host, who hears of progress, and how calls are named for good.

Time for a part of a run, after which it is cancelled.

What a run has spent, live: branches that run at once share what is left, and a subgraph spends of all
above it. The state keeps the same sums, so that a resumed run goes on counting; but it knows of a call only
when the step that made it is over, and of a subgraph's only when that has ended.

What one call takes of the limits of a run, and what it writes to the state's account.
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


# Of the innermost part with a time, which is no later than that of any around it.
_ends: ContextVar[float | None] = ContextVar("ends", default=None)

A_STEP = Spend(steps=1)
"""What a tool call takes."""


class RunSpending:
    """The purses of one run, by the path of subgraphs that leads to their actors. `begun` is what a run that
    is resumed had spent at each.

    Not thread-safe: it belongs to the loop on which the run's nodes are.
    """

    def __init__(self, begun: Mapping[str, Spend] | None = None) -> None:
        self._begun = begun or {}
        self._purses: dict[str, ActorSpending] = {}
        self._waiting: list[asyncio.Future[None]] = []

    def purse(self, actor: Actor, state: State) -> ActorSpending:
        """Of the actor whose state that is."""
        account = state[ACCOUNT]
        purse = self._purses.get(account["path"]) or self._opened(actor, account["path"], None)
        purse.spent = _larger(purse.spent, account)
        return purse

    def open_below(self, above: ActorSpending, actor: Actor, path: str) -> None:
        """For an actor that is about to run as a subgraph; what it spends is spent of those above, too."""
        self._opened(actor, path, above)

    async def settling(self) -> None:
        """Until one of the calls that go on has ended."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def settled(self) -> None:
        """A call has ended: whoever waited may look again."""
        woken, self._waiting = self._waiting, []
        for waiting in woken:
            if not waiting.done():
                waiting.set_result(None)

    def _opened(self, actor: Actor, path: str, above: ActorSpending | None) -> ActorSpending:
        purse = ActorSpending(self, actor, above, self._begun.get(path, Spend()))
        self._purses[path] = purse
        return purse


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
    account: RunSpending = field(default_factory=RunSpending)
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
class NodeLabel:
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


class SpendingReservation:
    """Leave for one call. It counts as its worst case as long as it goes on, then as `spent`; as nothing when
    it fails. Entering it waits where other calls of the run hold what it needs and may give it back, and
    raises `ActorStopped` when it might break a limit.

    Not thread-safe: the loop's own. A class, because a generator for each call would cost more than the sums.
    """

    __slots__ = ("_account", "_chain", "_worst", "spent")

    def __init__(self, account: RunSpending, chain: tuple[ActorSpending, ...], worst: Spend) -> None:
        self._account = account
        self._chain = chain
        self._worst = worst
        self.spent = worst

    async def __aenter__(self) -> SpendingReservation:
        while not all(purse.holds(self._worst) for purse in self._chain):
            await self._account.settling()
        for purse in self._chain:
            purse.reserved_sum = purse.reserved_sum + self._worst
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for purse in self._chain:
            if kind is None:
                purse.spent = purse.spent + self.spent
            purse.reserved_sum = _less(purse.reserved_sum, self._worst)
        self._account.settled()


class ActorSpending:
    """What one actor has spent within its limits, and what is reserved for its calls that go on: those of its
    subgraphs included.

    Not thread-safe: the loop's own. Cancel safety: a call that was cancelled gives back what it had reserved.
    """

    def __init__(self, account: RunSpending, actor: Actor, above: ActorSpending | None, spent: Spend) -> None:
        self._account = account
        self._actor = actor
        self._chain: tuple[ActorSpending, ...] = (self,) if above is None else (self, *above._chain)
        self.reserved_sum = Spend()
        self.spent = spent

    @property
    def counts_money(self) -> bool:
        """Whether a limit of money is to be kept, here or above."""
        return any(purse._actor.limits.usd is not None for purse in self._chain)

    def ensure_a_step_is_left(self) -> None:
        """`ActorStopped` when as many calls were made as may be made."""
        for purse in self._chain:
            purse._ensure_within(Spend(steps=1))

    def reserved(self, worst: Spend) -> SpendingReservation:
        """Leave for one call, to be entered."""
        return SpendingReservation(self._account, self._chain, worst)

    def holds(self, worst: Spend) -> bool:
        """Whether the call fits now; if not, it may when others have ended. `ActorStopped`."""
        self._ensure_within(worst)
        return self._broken(self.spent + self.reserved_sum + worst) is None

    def _ensure_within(self, more: Spend) -> None:
        broken = self._broken(self.spent + more)
        if broken is not None:
            raise ActorStopped(self._actor.name, broken)

    def _broken(self, total: Spend) -> str | None:
        limits = self._actor.limits
        if total.steps > limits.steps:  # guard: a loop ends
            return f"it has made {limits.steps} model and tool calls, which is its limit"
        if limits.tokens is not None and total.tokens > limits.tokens:  # guard: tokens
            return f"the next call might exceed its limit of {limits.tokens} tokens"
        if limits.usd is not None and total.picodollars > limits.usd * PICODOLLARS:  # guard: money
            return f"the next call might exceed its limit of ${limits.usd:g}"
        return None


async def spent_so_far(saver: BaseCheckpointSaver[Any], thread_id: str) -> dict[str, Spend]:
    """What a run that was cut off had spent, by path: what its states say, what tasks of a step that is not
    over have written, and what subgraphs that have not ended spent of those above them."""
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
    """Whether a subgraph belongs to the step where the graph above stands, and has not told it its sums."""
    if above is None:
        return False
    if kept.metadata.get("parents", {}).get(namespace) != above.checkpoint["id"]:
        return False
    task_id = kept.config["configurable"]["checkpoint_ns"].rpartition(":")[2]
    # guard: what has ended is counted once
    return not any(task == task_id and channel == ACCOUNT for task, channel, _ in above.pending_writes or ())


def _spend(account: Mapping[str, Any]) -> Spend:
    return Spend(account.get("money", 0), account.get("tokens", 0), account.get("steps", 0))


def _larger(spent: Spend, account: Mapping[str, Any]) -> Spend:
    """What is known already, or what the state says where that is more."""
    money, tokens, steps = account["money"], account["tokens"], account["steps"]
    if money <= spent.picodollars and tokens <= spent.tokens and steps <= spent.steps:
        return spent
    return Spend(max(spent.picodollars, money), max(spent.tokens, tokens), max(spent.steps, steps))


def _less(one: Spend, other: Spend) -> Spend:
    return Spend(one.picodollars - other.picodollars, one.tokens - other.tokens, one.steps - other.steps)


@dataclass(frozen=True, slots=True)
class CallCost:
    """Of one model call. `models` are those that may answer: the one that is asked, and who stands in."""

    models: Sequence[ModelFacts]
    usage: Usage

    def worst(self, *, priced: bool) -> Spend:
        """Whoever answers. `PriceUnknown` when it is to be `priced` and one of them has no price."""
        unpriced = [facts for facts in self.models if facts.price is None]
        if priced and unpriced:  # guard: a limit that nobody can keep is refused
            raise PriceUnknown(unpriced[0].name)
        # guard: the dearest, for it may be the one that answers
        money = max(_price(facts, self.usage) for facts in self.models)
        return Spend(money, self.usage.total, 1)

    def of(self, reply: ModelReply) -> Spend:
        """At the price of the model that answered; at worst where its provider did not say."""
        usage = reply.usage or self.usage
        answering = [facts for facts in self.models if facts.name == reply.model] or self.models
        return Spend(_price(answering[0], usage), usage.total, 1)


def written(spent: Spend) -> dict[str, Any]:
    """A write to the account."""
    return {ACCOUNT: {"steps": spent.steps, "tokens": spent.tokens, "money": spent.picodollars}}


def _price(facts: ModelFacts, usage: Usage) -> int:
    return 0 if facts.price is None else facts.price.of(usage)
