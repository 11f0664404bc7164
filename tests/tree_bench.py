"""A bench for trees of plans: parents with sub-plans, with steps that a test scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from cleveragents.config.settings import Settings
from cleveragents.core.json_value import FrozenObject, freeze
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Strategy, StrategyStep, Task
from cleveragents.plans.model.sub_plan import GOALS_ACTION
from cleveragents.plans.ports.plans import PlanDraft
from cleveragents.plans.run import PlanRun
from tests.plan_bench import PlanBench

__all__ = ["Part", "TreeBench", "name_of", "part", "tree_bench"]


@dataclass(frozen=True)
class Part:
    """One part: its steps, or its own parts."""

    name: str
    steps: tuple[StrategyStep, ...] = ()
    needs: tuple[int, ...] = ()
    parts: tuple[Part, ...] = ()
    facts: Mapping[str, Any] = FrozenObject({})


def part(
    name: str, *steps: StrategyStep, needs: Sequence[int] = (), parts: Sequence[Part] = (), **facts: Any
) -> Part:
    return Part(name, steps, tuple(needs), tuple(parts), facts)


def name_of(plan: Plan) -> str:
    """Return the name by which a test knows the plan; the rest of its goal describes its parent."""
    return plan.goal.partition("\n")[0]


class TreeBench(PlanBench):
    """Plans are identified by name, so that a test scripts sub-plans before they exist."""

    def __init__(self, home: Path, *, settings: Mapping[str, Any] | None = None, **facts: Any) -> None:
        super().__init__(home, isolation="off", **facts)
        kept = msgspec.to_builtins(self.settings)
        kept["plan"] = {**kept["plan"], **(settings or {})}
        self.settings = self.container.settings = msgspec.convert(kept, Settings)
        self.named: dict[str, Strategy] = {}

    def tree(self, *parts: Part, request: Mapping[str, Any] | None = None, **facts: Any) -> Plan:
        """Create a queued parent of these parts."""
        name = f"whole {len(self.named)}"
        self.know(part(name, parts=parts, **facts))
        kept = freeze(request or {})
        assert isinstance(kept, FrozenObject)
        return self.parts.lifecycle.create(PlanDraft(name, GOALS_ACTION, str(self.repository), kept))

    def worked(self, *parts: Part, **facts: Any) -> Plan:
        """Return a tree that has run as far as it goes."""
        return self.work(self.tree(*parts, **facts))

    def handler(self) -> PlanRun:
        run = self.parts.run(progress=self.said.append)
        return self.adapt(replace(run, make_strategy=lambda plan: self.named[name_of(plan)]))

    def made(self, name: str) -> Plan:
        """Create a plan by this name, without a queued job."""
        new = PlanDraft(name, "tests/made", str(self.repository))
        return self.parts.plans.create(new, now=self.container.clock.now())

    def child(self, plan: Plan, name: str) -> Plan:
        return next(child for child in self.parts.plans.children(plan.id) if name_of(child) == name)

    def file(self, plan: Plan, path: str) -> str:
        """Return a file in the plan's sandbox."""
        return (self.sandbox(plan).root / path).read_text()

    def merges(self, plan: Plan) -> list[str]:
        """Return the merged parts, in order, including reverted ones."""
        return [str(call.step) for call in self.calls(plan) if call.tool == "merge"]

    def know(self, one: Part, **facts: Any) -> None:
        """Script a plan by this name."""
        tasks = tuple(Task(inner.name, needs=inner.needs, sub_plan=True) for inner in one.parts)
        known = {"profile": "full-auto", **one.facts, **facts}
        self.named[one.name] = Strategy(one.steps, tasks=tasks, **known)
        for inner in one.parts:
            self.know(inner)


@contextmanager
def tree_bench(home: Path, **facts: Any) -> Iterator[TreeBench]:
    bench = TreeBench(home, **facts)
    with bench.container:
        yield bench
