"""A bench for plans with actors: a script for the model, and the real parts around it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from cleveragents.actors.model.actor import Actor
from cleveragents.actors.ports import ActorSource
from cleveragents.app.container import Container
from cleveragents.config.settings import Settings
from cleveragents.core.actions.model import Check
from cleveragents.core.faults import FaultPoints
from cleveragents.core.json_value import JsonValue, freeze, thaw
from cleveragents.models.model.budget import BudgetLimits
from cleveragents.models.ports import BudgetState, ModelCall
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import RoleAssignment, Strategy
from cleveragents.plans.ports.plans import PlanDraft
from tests.plan_bench import BenchParts, PlanBench

__all__ = [
    "USUAL",
    "ActorPlanBench",
    "accept",
    "actor_plan_bench",
    "answer",
    "call",
    "executes",
    "reviews",
    "revise",
    "rule",
    "says",
    "steps",
    "strategizes",
]

USUAL = ("builtin/strategist", "builtin/executor", "builtin/reviewer")
STRATEGIST = "You plan changes"
EXECUTOR = "You change files"
REVIEWER = "You review a change"


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """Return a tool call of the model."""
    return {"tool": tool, "arguments": arguments}


def answer(*calls: dict[str, Any], text: str = "", **more: Any) -> dict[str, Any]:
    return {"text": text, "calls": list(calls), **more}


def says(value: object, **more: Any) -> dict[str, Any]:
    """Return a structured or plain-text answer."""
    return answer(text=value if isinstance(value, str) else json.dumps(value), **more)


def rule(*turns: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """Return a rule with its turns; `when` and other keys are passed on."""
    return {"turns": list(turns), **facts}


def strategizes(*turns: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return rule(*turns, when={"system": STRATEGIST, **facts.pop("when", {})}, **facts)


def executes(*turns: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return rule(*turns, when={"system": EXECUTOR, **facts.pop("when", {})}, **facts)


def reviews(*turns: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return rule(*turns, when={"system": REVIEWER, **facts.pop("when", {})}, **facts)


def steps(*steps: Mapping[str, Any], decisions: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the strategist's final answer."""
    made = [{"question": "How?", "choice": "so", "rationale": "it fits"}, *decisions]
    return says({"summary": "a summary", "decisions": made, "steps": list(steps)})


def accept() -> dict[str, Any]:
    return says({"verdict": "accept", "findings": [], "summary": "good"})


def revise(*findings: str) -> dict[str, Any]:
    return says({"verdict": "revise", "findings": list(findings), "summary": "not good"})


class _Actors:
    """The actors of the test, and the built-in ones."""

    def __init__(self, own: Mapping[str, Actor], others: ActorSource) -> None:
        self._own = own
        self._others = others

    def get(self, name: str) -> Actor:
        return self._own[name] if name in self._own else self._others.get(name)


class _Parts(BenchParts):
    def __init__(self, container: Container, own: Mapping[str, Actor]) -> None:
        super().__init__(container)
        self._own = own

    def actors(self, resource: Path | None, sent: str | None = None) -> Any:
        return _Actors(self._own, super().actors(resource, sent))


class ActorPlanBench(PlanBench):
    """The parts of one process, with scripted models. `actors` are the test's own, by name."""

    def __init__(
        self,
        home: Path,
        *,
        faults: FaultPoints | None = None,
        models: Mapping[str, Any] | None = None,
        worker: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(home, isolation="off", faults=faults)
        facts = {**msgspec.to_builtins(self.settings), "models": {"retries": 0, **(models or {})}}
        facts["worker"] = {**facts["worker"], **(worker or {})}
        self.settings = self.container.settings = msgspec.convert(facts, Settings)
        self.home = home
        self.actors: dict[str, Actor] = {}
        self.parts = _Parts(self.container, self.actors)

    def script(self, *rules: dict[str, Any], **facts: Any) -> str:
        """Return the name of a model that answers from this script."""
        path = self.home / f"script-{len(list(self.home.glob('script-*')))}.yaml"
        path.write_text(json.dumps({"version": 1, "facts": facts, "rules": list(rules)}))
        return f"scripted/{path}"

    def goal(
        self,
        model: str,
        *,
        cast: tuple[str | None, str, str | None] = USUAL,
        limits: BudgetLimits | None = None,
        checks: Sequence[Check] = (),
        **facts: Any,
    ) -> Plan:
        """Return a plan with a queued job, for actors with this model."""
        request = freeze({"limits": thaw((limits or BudgetLimits()).to_json())})
        assert isinstance(request, Mapping)
        new = PlanDraft("a goal", "tests/goal", str(self.repository), request)
        plan = self.parts.lifecycle.create(new)
        strategy = Strategy(
            (), tuple(checks), casting=RoleAssignment(*cast, model), **{"profile": "full-auto", **facts}
        )
        self.strategies[plan.id] = strategy
        return plan

    def reached(self, *rules: dict[str, Any], **facts: Any) -> Plan:
        """Return a plan with the usual three turns, run as far as it goes."""
        return self.work(self.goal(self.script(*rules), **facts))

    def reply(self, plan: Plan, text: str) -> Plan:
        return self.work(self.parts.lifecycle.reply(self.now(plan), text))

    def waited(self, plan: Plan) -> Mapping[str, JsonValue]:
        """Return its pending request."""
        found = self.now(plan).waiting_for
        assert isinstance(found, Mapping)
        return found

    def spent(self, plan: Plan) -> BudgetState:
        return self.parts.actor_parts.budgets.view(plan.root_id or plan.id)

    def thoughts(self, plan: Plan) -> Sequence[ModelCall]:
        return self.parts.actor_parts.budgets.calls_of(plan.id)

    def raise_limits(self, plan: Plan, limits: BudgetLimits) -> None:
        self.parts.actor_parts.raise_limits(plan, limits)

    def tools_of(self, plan: Plan) -> list[str]:
        """Return the tools it used, in order."""
        return [made.tool for made in self.calls(plan)]


@contextmanager
def actor_plan_bench(home: Path, **facts: Any) -> Iterator[ActorPlanBench]:
    bench = ActorPlanBench(home, **facts)
    with bench.container:
        yield bench
