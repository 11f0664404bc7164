"""The parts of the plan engine: each is built once in a process."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from cleveragents.app.actor_parts import ActorParts
from cleveragents.app.container import Container
from cleveragents.app.remote_parts import RemoteParts
from cleveragents.app.scope import Once, Scope, shared
from cleveragents.core.errors import Closed
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.history import PlanHistory
from cleveragents.plans.lifecycle import PlanLifecycle
from cleveragents.plans.remote.sandboxes import RemoteSandboxes
from cleveragents.plans.sandbox_edits import SandboxEdits
from cleveragents.plans.store.sql_plan_store import SqlPlanStore
from cleveragents.sandboxes.mirror import Mirrors
from tests.actor_plan_bench import (
    accept,
    actor_plan_bench,
    answer,
    call,
    executes,
    reviews,
    says,
    steps,
    strategizes,
)

PARTS = (
    ActorParts,
    Mirrors,
    PlanHistory,
    PlanLifecycle,
    SandboxEdits,
    RemoteParts,
    RemoteSandboxes,
    SqlPlanStore,
)


def test_a_goal_builds_each_part_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: Counter[str] = Counter()

    def counting(kind: type, original: Any) -> Any:
        def init(self: Any, *arguments: Any, **named: Any) -> None:
            built[kind.__name__] += 1
            original(self, *arguments, **named)

        return init

    def counted(kind: type) -> Any:
        def make(*arguments: Any, **named: Any) -> Any:
            built[kind.__name__] += 1
            return kind(*arguments, **named)

        return make

    for kind in PARTS:
        if issubclass(kind, Struct):  # made in C, without a method to replace
            monkeypatch.setattr(sys.modules[kind.__module__], kind.__name__, counted(kind))
        else:
            monkeypatch.setattr(kind, "__init__", counting(kind, vars(kind)["__init__"]))
    with actor_plan_bench(tmp_path) as bench:
        plan = bench.reached(
            strategizes(steps({"title": "the notes", "instructions": "write them"})),
            executes(answer(call("write", path="notes.txt", content="news\n")), says("done")),
            reviews(accept()),
        )
        assert plan.error is None
        bench.parts.apply.apply(plan, CancellationToken())
    assert built == dict.fromkeys((kind.__name__ for kind in PARTS), 1)


class Owner:
    """An owner of a part."""

    def __init__(self) -> None:
        self.began = threading.Barrier(2, timeout=10)
        self.built = 0

    @Once
    def part(self) -> object:
        """The part."""
        self.began.wait()
        self.built += 1
        return object()


def test_threads_that_build_a_part_at_the_same_time_get_the_same_one() -> None:
    owner, found = Owner(), []
    threads = [threading.Thread(target=lambda: found.append(owner.part)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert owner.built == 2
    assert found == [owner.part] * 2


def test_the_container_keeps_its_plan_parts(tmp_path: Path) -> None:
    with actor_plan_bench(tmp_path) as bench:
        container: Container = bench.container
        assert container.plan_parts is container.plan_parts
        assert container.plan_parts.plans is container.plan_parts.plans


class _Owner:
    def __init__(self) -> None:
        self._scope = Scope("the owner")
        self.told: list[str] = []

    @shared(lambda part: part.append("closed"))
    def lower(self) -> list[str]:
        self.told.append("lower")
        return self.told

    @shared()
    def upper(self) -> tuple[list[str], str]:
        """A part that needs the lower one."""
        return self.lower, "upper"


def test_a_shared_part_is_built_once_and_closed_with_its_owner() -> None:
    owner = _Owner()
    assert owner.upper is owner.upper
    assert owner.told == ["lower"]
    with pytest.raises(AttributeError, match="lower cannot be assigned"):
        owner.lower = []
    owner._scope.close()
    assert owner.told == ["lower", "closed"]
    with pytest.raises(Closed):
        _ = owner.upper
    assert _Owner().lower == ["lower"], "each owner has its own"
