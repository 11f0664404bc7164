"""Actors to run in tests: short to write down, on a real database, through the real bridge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from cleveragents.actors.model.actor import Actor, LlmNode, Node, StateKey
from cleveragents.actors.ports import ActorOutcome, ActorRequest
from cleveragents.actors.runner import BridgeActorRunner
from cleveragents.actors.store.sql_checkpoint_store import SqlCheckpointStore
from cleveragents.core.errors import UnknownActor
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.storage.database import open_database
from cleveragents.testing.actor_host import ScriptedHost
from tests.ready_database import ready_database

__all__ = ["LIMIT", "Bench", "KnownActors", "actor", "open_bench", "thinker"]

LIMIT = 60.0
"""Seconds after which a test that waits has failed."""


class KnownActors:
    """Actors by name."""

    def __init__(self, *known: Actor) -> None:
        self._known = {one.name: one for one in known}

    def get(self, name: str) -> Actor:
        if name not in self._known:
            raise UnknownActor(name)
        return self._known[name]


class Bench:
    """A runner on a store. `again` is another runner on the same store: a process that was started anew."""

    def __init__(self, store: SqlCheckpointStore) -> None:
        self.store = store
        self.runner = BridgeActorRunner(store)
        self._others: list[BridgeActorRunner] = []
        self._numbers = count(1)

    def thread(self) -> str:
        """A name for a run that no other has."""
        return f"plan/execute/{next(self._numbers)}"

    def again(self) -> BridgeActorRunner:
        self._others.append(BridgeActorRunner(self.store))
        return self._others[-1]

    def request(self, which: Actor, host: ScriptedHost, **facts: Any) -> ActorRequest:
        """A request with what is not said left at its usual."""
        usual: dict[str, Any] = {"thread_id": self.thread(), "inputs": {"goal": "win"}}
        return ActorRequest(actor=which, host=host, **{**usual, "stop": CancellationToken(), **facts})

    def run(self, which: Actor, host: ScriptedHost, **facts: Any) -> ActorOutcome:
        return self.runner.run(self.request(which, host, **facts))

    def close(self) -> None:
        for runner in (self.runner, *self._others):
            runner.close()


@contextmanager
def open_bench(path: Path) -> Iterator[Bench]:
    """On a new database."""
    with open_database(ready_database(path / "store.db")) as database:
        bench = Bench(SqlCheckpointStore(database))
        try:
            yield bench
        finally:
            bench.close()


def actor(*nodes: Node, state: tuple[StateKey, ...] = (), **facts: Any) -> Actor:
    """An actor that begins with its first node."""
    usual: dict[str, Any] = {"name": "local/test", "entry": nodes[0].name}
    return Actor(nodes=nodes, state=state, **{**usual, **facts})


def thinker(name: str = "think", **facts: Any) -> LlmNode:
    """An llm node that asks for nothing much."""
    return LlmNode(**{"name": name, "prompt": "Do ${goal}.", **facts})
