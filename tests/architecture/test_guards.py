"""Every guard has tests that must fail without it. `nox -s mutants` runs them."""

from __future__ import annotations

from tests.mutants.__main__ import problems_of_map


def test_every_guard_has_a_mutant_and_tests_to_catch_it() -> None:
    assert problems_of_map() == []
