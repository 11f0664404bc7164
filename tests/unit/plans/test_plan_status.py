"""One status for every phase, state and reason of a plan."""

from __future__ import annotations

from itertools import product

import pytest

from cleveragents.plans.model.plan import Phase, PlanState
from cleveragents.plans.model.status import PlanStatus, possible_states, status_of

FLAGS = ("stopped", "sub_plans_run", "in_conflict", "merged", "changed", "rolled_back")
A, S, E, P = Phase
BEFORE_APPLY = (A, S, E)

# phases, state, flags that must hold, status; the first matching row counts
TABLE = [
    (Phase, "applied", {}, "applied"),
    (Phase, "undone", {}, "undone"),
    (Phase, "rejected", {}, "discarded"),
    (Phase, "cancelled", {}, "cancelled"),
    (Phase, "constrained", {"rolled_back": False}, "blocked"),
    (Phase, "constrained", {"in_conflict": True}, "waiting"),
    (Phase, "constrained", {"merged": True}, "merged"),
    (Phase, "constrained", {"changed": True}, "ready"),
    (Phase, "constrained", {"changed": False}, "unchanged"),
    ([P], "queued", {}, "applying"),
    ([P], "processing", {}, "applying"),
    ([P], "waiting", {}, "applying"),
    ([P], "errored", {}, "blocked"),
    (BEFORE_APPLY, "queued", {}, "queued"),
    ([A, S], "processing", {}, "planning"),
    ([E], "processing", {}, "running"),
    (BEFORE_APPLY, "errored", {"stopped": True}, "paused"),
    (BEFORE_APPLY, "errored", {"stopped": False}, "failed"),
    (BEFORE_APPLY, "waiting", {"sub_plans_run": True}, "running"),
    (BEFORE_APPLY, "waiting", {"sub_plans_run": False}, "waiting"),
    ([A, S, P], "complete", {}, "planning"),
    ([E], "complete", {"in_conflict": True}, "waiting"),
    ([E], "complete", {"merged": True}, "merged"),
    ([E], "complete", {"changed": True}, "ready"),
    ([E], "complete", {"changed": False}, "unchanged"),
]


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("state", PlanState)
def test_every_combination_has_the_status_of_the_table(phase: Phase, state: PlanState) -> None:
    for values in product((False, True), repeat=len(FLAGS)):
        flags = dict(zip(FLAGS, values, strict=True))
        wanted = next(
            status
            for phases, named, needed, status in TABLE
            if phase in phases and named == state.value and needed.items() <= flags.items()
        )
        assert status_of(phase, state, **flags).value == wanted, flags


def test_every_status_is_reached() -> None:
    assert {row[-1] for row in TABLE} == {status.value for status in PlanStatus}


def test_the_possible_states_of_a_status_are_those_of_the_table() -> None:
    for status in PlanStatus:
        wanted = {PlanState(state) for _, state, _, word in TABLE if word == status.value}
        assert possible_states(status) == wanted, status
