"""The simulation of scale: it waits only at bottlenecks, and is reproducible."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from benchmarks.scale_simulation import DEPLOYMENTS, Constants, simulate, table, verdict

OF = Constants()
POSTGRESQL = DEPLOYMENTS[1]


def test_unlimited_capacities_cause_no_waiting() -> None:
    endless = dict.fromkeys(POSTGRESQL.capacities(1000, OF), inf)
    longer, waited = simulate(1000, endless, OF)
    assert longer == pytest.approx(1.0)
    assert set(waited.values()) == {0.0}


@pytest.mark.parametrize("name", ["provider limits", "database writes", "git transfer"])
def test_half_the_needed_capacity_doubles_the_time_and_is_the_bottleneck(name: str) -> None:
    capacities = dict.fromkeys(POSTGRESQL.capacities(1000, OF), inf)
    busy = simulate(1000, {**capacities, name: 1e-3}, OF)[0]  # so small that it is the only bottleneck
    needed = 1e-3 * busy
    longer, waited = simulate(1000, {**capacities, name: needed / 2}, OF)
    assert longer == pytest.approx(2.0, rel=0.1)
    assert max(waited, key=lambda one: waited[one]) == name


def test_a_sample_predicts_many_plans() -> None:
    capacities = POSTGRESQL.capacities(1000, OF)
    few = simulate(1000, capacities, OF)[0]
    many = simulate(100_000, {name: 100 * value for name, value in capacities.items()}, OF)[0]
    assert many == pytest.approx(few, rel=0.05)


def test_reports_every_bottleneck_by_raising_one_after_the_other() -> None:
    small = replace(OF, provider_calls=0.1, postgresql_transactions=1.0)
    found = dict(verdict(1000, POSTGRESQL, small).gives_way)
    assert list(found) == ["provider limits", "database writes"]
    assert found["provider limits"] > found["database writes"] > 1
    large = replace(OF, provider_calls=1e9, memory_per_plan_bytes=1e12)
    assert [name for name, _ in verdict(1000, POSTGRESQL, large).gives_way] == ["memory"]


def test_the_table_is_the_same_every_time() -> None:
    assert table() == table()
