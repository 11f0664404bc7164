"""The first bottlenecks at 10, 1,000 and 100,000 parallel plans, from measured constants.

    python -m benchmarks.scale_simulation            # the table
    python -m benchmarks.scale_simulation --write    # into docs/explanation/scale.md

The model is a closed queue network: a constant number of plans is running, each a sequence of turns. A turn
calls a model, writes to the database, sends its events and uses some CPU; a plan starts by getting its files
and ends with its checks and its apply. Each of these has a capacity, and a plan that finds it in use waits.
The resource with the highest demand beyond its capacity causes the longest waits: it gives way first. It is
then made unlimited and the simulation is repeated, until plans take at most a quarter longer than without any
waiting.

A hundred thousand plans are not simulated individually: a sample represents all of them, and each capacity is
divided by the number of plans that one of the sample stands for. Standard library only, no clock, one seed:
the same table every time.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from types import MappingProxyType

__all__ = ["DEPLOYMENTS", "SIZES", "Constants", "Deployment", "Verdict", "simulate", "table", "verdict"]

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "scale.md"
SIZES = (10, 1_000, 100_000)
_SAMPLE = 50
_PATIENCE = 1.25


@dataclass(frozen=True)
class Constants:
    """Constants. The source of each is stated next to it: measured by a benchmark of this directory, or
    assumed.
    """

    # Measured: `plan_costs`. 75 transactions for a goal of four answers, and six for each further answer with
    # a tool call ("Goals and actors" in docs/reference/performance.md).
    transactions_per_plan: float = 51.0
    transactions_per_turn: float = 6.0
    # Measured: `plan_costs`, 0.7-0.8 CPU seconds per plan, including git and all processes.
    cpu_seconds_per_plan: float = 0.64
    cpu_seconds_per_turn: float = 0.03
    # Measured: `many_plans`; memory with 200 parallel plans.
    events_per_plan: float = 20.0
    events_per_turn: float = 3.0
    memory_per_plan_bytes: float = 0.63e6
    # Measured: `plan_costs`, the additional time of a plan on a remote; only one at a time moves a branch.
    apply_seconds: float = 0.2
    # Measured: `bench_jobs` (SQLite, 1,860 jobs/s of two transactions each, quiet, one machine).
    sqlite_transactions: float = 3_700.0
    # Measured: `engine_peers`, 1,000 jobs/s on two cores shared with the workers; three and more share two
    # transactions of their transitions, counted as one each. Extrapolated: a server with 16 cores does eight
    # times as much.
    postgresql_transactions: float = 1_000.0
    postgresql_server: float = 8.0
    # Measured: `bench_streams`, 2,000 events/s to 100 clients with 0.35 of a core. Extrapolated to a whole
    # core.
    fanout_events: float = 5_700.0
    # Assumed: a typical plan.
    turns: int = 20
    model_seconds: float = 10.0
    check_cpu_seconds: float = 10.0
    transfer_bytes: float = 2e6
    # Assumed: limits of one account at a provider, a network of 1 Gbit/s, machines with 8 cores and 32 GB,
    # and the throughput of a Temporal service with three nodes.
    provider_calls: float = 4_000 / 60
    network_bytes: float = 1.25e8
    cores: float = 8.0
    memory_bytes: float = 24e9
    temporal_activities: float = 1_000.0


@dataclass(frozen=True)
class Deployment:
    """A deployment: the capacity of all shared resources for a number of plans."""

    name: str
    machines_for: int
    database: str
    temporal: bool = False

    def machines(self, plans: int) -> int:
        """Return the number of machines: one, or one for each group of plans."""
        return ceil(plans / self.machines_for) if self.machines_for else 1

    def repositories(self, plans: int) -> int:
        """Return the number of branches: one for fifty plans."""
        return max(1, plans // 50)

    def capacities(self, plans: int, of: Constants) -> dict[str, float]:
        """Return the capacities in units per second."""
        sqlite, postgres = of.sqlite_transactions, of.postgresql_transactions * of.postgresql_server
        return {
            "provider limits": of.provider_calls,
            "database writes": sqlite if self.database == "SQLite" else postgres,
            "event fan-out": of.fanout_events,
            "CPU": of.cores * self.machines(plans),
            "git transfer": of.network_bytes,
            "applies to one branch": self.repositories(plans) / of.apply_seconds,
            "Temporal": of.temporal_activities if self.temporal else inf,
        }

    def memory(self, plans: int, of: Constants) -> float:
        """Return the share of all machines' memory that the plans use."""
        return plans * of.memory_per_plan_bytes / (of.memory_bytes * self.machines(plans))


DEPLOYMENTS = (
    Deployment("SQLite, one machine", 0, "SQLite"),
    Deployment("PostgreSQL, a worker machine for each 100 plans", 100, "PostgreSQL"),
    Deployment("Temporal and PostgreSQL, the same machines", 100, "PostgreSQL", temporal=True),
)

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "provider limits": "more accounts or providers, self-hosted models; `jobs.provider_limit` keeps "
        "plans queued instead of refused",
        "database writes": "several installations, each with its own projects; a larger server",
        "event fan-out": "several servers on one database, each with a part of the browsers",
        "CPU": "more worker machines (`agents worker`); checks elsewhere",
        "git transfer": "mirrors near the workers; a faster network",
        "applies to one branch": "a branch for each plan and a merge queue behind them",
        "Temporal": "more nodes of Temporal's history service",
        "memory": "more worker machines",
    }
)


def _path(of: Constants) -> list[tuple[str, float]]:
    """Return the steps of a plan: the resource and the units of each. `model` is pure time."""
    turn = [
        ("provider limits", 1.0),
        ("model", of.model_seconds),
        ("database writes", of.transactions_per_turn),
        ("event fan-out", of.events_per_turn),
        ("CPU", of.cpu_seconds_per_turn),
    ]
    start = [
        ("Temporal", 1.0),
        ("database writes", of.transactions_per_plan / 2),
        ("git transfer", of.transfer_bytes),
        ("CPU", of.cpu_seconds_per_plan),
    ]
    end = [
        ("CPU", of.check_cpu_seconds),
        ("database writes", of.transactions_per_plan / 2),
        ("event fan-out", of.events_per_plan),
        ("Temporal", 1.0),
        ("applies to one branch", 1.0),
    ]
    return [*start, *(turn * of.turns), *end]


def simulate(plans: int, capacities: Mapping[str, float], of: Constants) -> tuple[float, dict[str, float]]:
    """Return how many times longer a plan takes than without waiting, and its waiting time per resource."""
    path = _path(of)
    sample = min(plans, _SAMPLE)
    share = sample / plans
    rates = {name: capacity * share for name, capacity in capacities.items()}
    # One plan uses one core and one branch at a time, however many there are.
    own = {"CPU": 1.0, "applies to one branch": 1.0 / of.apply_seconds}
    ideal = sum(_alone(name, units, own) for name, units in path)
    dice = random.Random(7)
    ready = [(dice.uniform(0, ideal), number, 0) for number in range(sample)]
    heapq.heapify(ready)
    free = dict.fromkeys(rates, 0.0)
    waited = dict.fromkeys(rates, 0.0)
    began: dict[int, float] = {}
    took: list[float] = []
    while len(took) < sample:
        now, number, place = heapq.heappop(ready)
        step = place % len(path)
        if step == 0:
            if place == 2 * len(path):
                took.append(now - began[number])
            began[number] = now
        name, units = path[step]
        alone = _alone(name, units, own)
        then = now + alone
        if name in rates and rates[name] < inf:
            free[name] = max(now, free[name]) + units / rates[name]
            then = max(then, free[name])
            waited[name] += then - now - alone
        heapq.heappush(ready, (then, number, place + 1))
    return sum(took) / len(took) / ideal, waited


def _alone(name: str, units: float, own: Mapping[str, float]) -> float:
    return units if name == "model" else units / own[name] if name in own else 0.0


@dataclass(frozen=True)
class Verdict:
    """The result for one deployment.

    `longer` is how many times longer plans take than without waiting; `gives_way` lists the resources that
    are too small, the worst first, with the factor by which they would have to grow.
    """

    plans: int
    deployment: Deployment
    longer: float
    gives_way: Sequence[tuple[str, float]]


def verdict(plans: int, deployment: Deployment, of: Constants | None = None) -> Verdict:
    """Find the resources that give way, one after the other."""
    of = of or Constants()
    capacities = deployment.capacities(plans, of)
    path = _path(of)
    longer, waited = simulate(plans, capacities, of)
    first = longer
    own = {"CPU": 1.0, "applies to one branch": 1.0 / of.apply_seconds}
    ideal = sum(_alone(name, units, own) for name, units in path)
    found: list[tuple[str, float]] = []
    while longer > _PATIENCE:
        worst = max(waited, key=lambda name: waited[name])
        wanted = plans * sum(units for name, units in path if name == worst) / ideal
        found.append((worst, wanted / capacities[worst]))
        capacities[worst] = inf
        longer, waited = simulate(plans, capacities, of)
    memory = deployment.memory(plans, of)
    if memory > 1:
        found.append(("memory", memory))
    return Verdict(plans, deployment, first, found)


def table(of: Constants | None = None) -> str:
    """Return the results as a table for the page."""
    rows = [
        "| plans at once | on | machines | plans take | exhausted resources, worst first |",
        "|---|---|---|---|---|",
    ]
    for plans in SIZES:
        for deployment in DEPLOYMENTS:
            one = verdict(plans, deployment, of)
            ways = ", ".join(f"{name} (× {_round(factor)})" for name, factor in one.gives_way) or "nothing"
            machines = f"{deployment.machines(plans):,}"
            rows.append(
                f"| {plans:,} | {deployment.name} | {machines} | × {_round(one.longer)} | {ways} |"
            )  # fmt: skip
    remedies = ["| exhausted resource | remedy |", "|---|---|"]
    remedies += [f"| {name} | {remedy} |" for name, remedy in REMEDIES.items()]
    return "\n".join([*rows, "", *remedies]) + "\n"


def _round(factor: float) -> str:
    return f"{factor:,.1f}" if factor < 10 else f"{factor:,.0f}"


def _written(text: str, made: str) -> str:
    """Return the page with the table between its marks."""
    before, mark, rest = text.partition("<!-- made by benchmarks/scale_simulation.py -->\n")
    _, end, after = rest.partition("<!-- end -->")
    assert mark, "the page has no mark where the table begins"
    assert end, "the page has no mark where the table ends"
    return f"{before}{mark}{made}{end}{after}"


def main(arguments: Sequence[str]) -> int:
    made = table()
    if "--write" in arguments:
        PAGE.write_text(_written(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
