"""The table on the page on scale matches the simulation."""

from __future__ import annotations

from benchmarks.scale_simulation import PAGE, REMEDIES, SIZES, table


def test_the_table_matches_the_simulation() -> None:
    made = table()
    assert made in PAGE.read_text(encoding="utf-8"), (
        "run `python -m benchmarks.scale_simulation --write`, and read what the page says of the table"
    )
    assert all(f"| {plans:,} | " in made for plans in SIZES)


def test_every_limit_has_a_remedy() -> None:
    from benchmarks.scale_simulation import DEPLOYMENTS, Constants

    for deployment in DEPLOYMENTS:
        assert set(deployment.capacities(1000, Constants())) | {"memory"} == set(REMEDIES)
