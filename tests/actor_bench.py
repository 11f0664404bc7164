"""Short definitions of actors for tests, run on a real database through the real bridge."""

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
"""Time limit of a waiting test, in seconds."""


class KnownActors:
    """Actors by name."""

    def __init__(self, *known: Actor) -> None:
        self._known = {one.name: one for one in known}

    def get(self, name: str) -> Actor:
        if name not in self._known:
            raise UnknownActor(name)
        return self._known[name]


class Bench:
    """A runner on a store. `again` returns another runner on the same store, like a restarted process."""

    def __init__(self, store: SqlCheckpointStore) -> None:
        self.store = store
        self.runner = BridgeActorRunner(store)
        self._others: list[BridgeActorRunner] = []
        self._numbers = count(1)

    def thread(self) -> str:
        """Return a unique name for a run."""
        return f"plan/execute/{next(self._numbers)}"

    def again(self) -> BridgeActorRunner:
        self._others.append(BridgeActorRunner(self.store))
        return self._others[-1]

    def request(self, which: Actor, host: ScriptedHost, **facts: Any) -> ActorRequest:
        """Return a request with defaults for everything not given."""
        usual: dict[str, Any] = {"thread_id": self.thread(), "inputs": {"goal": "win"}}
        return ActorRequest(actor=which, host=host, **{**usual, "stop": CancellationToken(), **facts})

    def run(self, which: Actor, host: ScriptedHost, **facts: Any) -> ActorOutcome:
        return self.runner.run(self.request(which, host, **facts))

    def close(self) -> None:
        for runner in (self.runner, *self._others):
            runner.close()


@contextmanager
def open_bench(path: Path) -> Iterator[Bench]:
    """Open a bench on a new database."""
    with open_database(ready_database(path / "store.db")) as database:
        bench = Bench(SqlCheckpointStore(database))
        try:
            yield bench
        finally:
            bench.close()


def actor(*nodes: Node, state: tuple[StateKey, ...] = (), **facts: Any) -> Actor:
    """Return an actor that starts with its first node."""
    usual: dict[str, Any] = {"name": "local/test", "entry": nodes[0].name}
    return Actor(nodes=nodes, state=state, **{**usual, **facts})


def thinker(name: str = "think", **facts: Any) -> LlmNode:
    """Return a minimal llm node."""
    return LlmNode(**{"name": name, "prompt": "Do ${goal}.", **facts})
