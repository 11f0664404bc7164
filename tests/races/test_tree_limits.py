"""However many sub-plans are spawned at the same time, a tree keeps its limits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from cleveragents.core.errors import TreeTooLarge
from cleveragents.core.identifiers import Fence
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.ports.plans import PlanDraft, TreeLimits
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.storage.database import open_database
from cleveragents.testing.clock import CountingIdentifiers
from tests.races.explorers import Scenario, assert_caught, assert_holds
from tests.races.naive_tree import LookThenSpawnPlanStore
from tests.races.one_connection import content_of, in_memory_database
from tests.races.plan_spawner import FULL, NOW, parent_in, sizes
from tests.ready_database import ready_database

ROOT = Path(__file__).parents[2]
SECONDS = 60.0


@dataclass
class Shared:
    """A plan with room for one sub-plan, and the answers of each worker."""

    store: type[SqlPlanStore]
    answers: dict[int, Hashable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        content, self.parent, self.job_id = _beginning()
        self.database = in_memory_database(content)
        self.plans = self.store(self.database, CountingIdentifiers("new"))

    def spawn(self, who: int, key: str) -> None:
        new = PlanDraft("part", "tests/any", "/repo")
        fence, limits = Fence(self.job_id, 1), TreeLimits(fan_out=1)
        try:
            self.plans.spawn(self.parent, new, key, limits, now=NOW, fence=fence)
        except TreeTooLarge:
            self.answers[who] = "refused"
        else:
            self.answers[who] = "spawned"

    def outcome(self) -> Hashable:
        children = len(self.plans.children(self.parent.id))
        self.database.close()
        return (self.answers[0], self.answers[1], children)


@cache
def _beginning() -> tuple[bytes, Plan, str]:
    with in_memory_database() as database:
        parent, job_id = parent_in(database)
        return content_of(database), parent, job_id


def the_last_place(store: type[SqlPlanStore]) -> Scenario[Shared]:
    outcomes: set[Hashable] = {("spawned", "refused", 1), ("refused", "spawned", 1)}
    return Scenario(
        name="two spawn where there is room for one",
        setup=lambda: Shared(store),
        workers=[lambda shared: shared.spawn(0, "a"), lambda shared: shared.spawn(1, "b")],
        outcome=Shared.outcome,
        allowed=lambda outcome: outcome in outcomes,
        reachable=frozenset(outcomes),
    )


def one_key(store: type[SqlPlanStore]) -> Scenario[Shared]:
    only: Hashable = ("spawned", "spawned", 1)
    return Scenario(
        name="two spawn by one key",
        setup=lambda: Shared(store),
        workers=[lambda shared: shared.spawn(0, "a"), lambda shared: shared.spawn(1, "a")],
        outcome=Shared.outcome,
        allowed=lambda outcome: outcome == only,
        reachable=frozenset({only}),
    )


def test_one_of_two_spawns_beyond_the_limit_is_refused() -> None:
    assert_holds(the_last_place(SqlPlanStore), effort=20)


def test_two_spawns_of_one_key_return_the_same_sub_plan() -> None:
    assert_holds(one_key(SqlPlanStore), effort=20)


def test_a_naive_spawn_is_caught() -> None:
    assert_caught(the_last_place(LookThenSpawnPlanStore), effort=120)


def test_two_processes_keep_the_limits_of_a_tree(tmp_path: Path) -> None:
    """anthropics/claude-code#72732, #69395, #68619: agents that start agents, hundreds of them."""
    url = ready_database(tmp_path / "tree.db")
    with open_database(url) as database:
        parent, job_id = parent_in(database)
        command = [sys.executable, "-m", "tests.races.plan_spawner", url, parent.id, job_id]
        children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            for _ in range(2)
        ]
        try:
            for child in children:
                assert child.stdout is not None
                assert child.stdout.readline() == "ready\n"
            told = [child.stdin for child in children]
            for pipe in told:
                assert pipe is not None
                pipe.write("go\n")
                pipe.flush()
            answers = [child.communicate(timeout=SECONDS)[0] for child in children]
        finally:
            for child in children:
                child.kill()
                child.communicate()
        assert all(int(answer) > 0 for answer in answers)
        assert sizes(database, parent.id) == FULL
