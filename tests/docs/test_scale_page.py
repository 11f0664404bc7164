"""The table on the page on scale is what the simulation says now."""

from __future__ import annotations

from benchmarks.scale_simulation import PAGE, REMEDIES, SIZES, table


def test_the_table_is_what_the_simulation_says() -> None:
    made = table()
    assert made in PAGE.read_text(encoding="utf-8"), (
        "run `python -m benchmarks.scale_simulation --write`, and read what the page says of the table"
    )
    assert all(f"| {plans:,} | " in made for plans in SIZES)


def test_everything_that_may_give_way_has_a_remedy() -> None:
    from benchmarks.scale_simulation import DEPLOYMENTS, Constants

    for deployment in DEPLOYMENTS:
        assert set(deployment.capacities(1000, Constants())) | {"memory"} == set(REMEDIES)
