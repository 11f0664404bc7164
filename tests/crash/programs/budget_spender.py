"""`python -m tests.crash.programs.budget_spender`: many processes that spend from one budget concurrently.

Its input is JSON: `url`, `store` (a class's name), `processes`, `calls`, `seed`. It forks that many, each for
a plan of the tree below `root`. First all of them reserve before any of them settles; then each makes calls
of random costs, and some die of `kill -9` in the middle of one. It prints their observations, a JSON list
each.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cleveragents.core.errors import BudgetExhausted
from cleveragents.core.identifiers import UlidSource
from cleveragents.models.model.budget import Spend
from cleveragents.models.model.conversation import Usage
from cleveragents.models.store.sql_budget_store import SqlBudgetStore
from cleveragents.storage import sqlite_backend
from cleveragents.storage.database import open_database
from tests.races.naive_budget import LookThenReserveBudgetStore, SettledLaterBudgetStore

STORES = {
    store.__name__: store for store in (SqlBudgetStore, LookThenReserveBudgetStore, SettledLaterBudgetStore)
}
IMPORTED = (sqlite_backend,)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = 10_000
WANTED = 3_000
"""The first concurrent request of each: three fit, the fourth does not."""
DEATHS = 4
PATIENCE_SECONDS = 60.0


class Spender:
    """One process: its granted and refused requests, and the highest usage it observed."""

    def __init__(self, store: SqlBudgetStore, number: int, chance: random.Random) -> None:
        self._store = store
        self._plan = f"plan-{number}"
        self._number = number
        self._chance = chance
        self.seen = {"given": 0, "refused": 0, "most": 0}

    def first(self, meet: Callable[[], None]) -> None:
        """Reserve together with all others, before anything is settled."""
        held = self._reserved(WANTED, "first")
        meet()
        if held is not None:
            self._store.settle(held, Spend(0, WANTED, 1), Usage(WANTED, 0), now=NOW)
        self._look()
        meet()

    def give_back(self, meet: Callable[[], None]) -> None:
        """Reserve the amount that fits all, and release it."""
        self._store.release(self._reserved(1, "spare"), now=NOW)
        meet()

    def go_on(self, calls: int) -> None:
        for number in range(calls):
            held = self._reserved(self._chance.randrange(1, 400), f"call-{number % 3}")
            if held is not None and self._number < DEATHS and number == calls // 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if held is None:
                continue
            taken = self._chance.randrange(held.worst.tokens + 1)
            if taken % 7 == 0:
                self._store.release(held, now=NOW)
            elif taken % 7 > 1:
                self._store.settle(held, Spend(0, taken, 1), Usage(taken, 0), now=NOW)
            # Otherwise it is dropped until the plan's next call of that name, or until it is forfeited.
            self._look()

    def _reserved(self, tokens: int, key: str) -> Any:
        try:
            held = self._store.reserve(
                "root", self._plan, Spend(0, tokens, 1), key=key, actor="a", node="n", model="m", now=NOW
            )
        except BudgetExhausted:
            self.seen["refused"] += 1
            return None
        self.seen["given"] += 1
        self._look()
        return held

    def _look(self) -> None:
        view = self._store.view("root")
        self.seen["most"] = max(self.seen["most"], view.spent.tokens + view.reserved.tokens)


def spend(order: dict[str, Any], number: int, meet: Callable[[], None], told: int) -> None:
    with open_database(order["url"]) as database:
        store = STORES[order["store"]](database, UlidSource())
        spender = Spender(store, number, random.Random(order["seed"] * 100 + number))
        spender.first(meet)
        if order["calls"]:
            spender.give_back(meet)
            spender.go_on(order["calls"])
        os.write(told, (json.dumps(spender.seen) + "\n").encode())


def main() -> None:
    order = json.load(sys.stdin)
    told = os.pipe()
    barrier = multiprocessing.get_context("fork").Barrier(order["processes"])

    def meet() -> None:
        barrier.wait(PATIENCE_SECONDS)

    children = []
    for number in range(order["processes"]):
        pid = os.fork()
        if pid == 0:
            try:
                spend(order, number, meet, told[1])
            except BaseException as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    os.close(told[1])
    with os.fdopen(told[0]) as lines:
        seen = [json.loads(line) for line in lines]
    json.dump({"codes": codes, "seen": seen}, sys.stdout)


if __name__ == "__main__":
    main()
