"""The state machine of plans: exactly these moves; every other move raises a typed error.

The table is written from the specification, not from the code: for each phase and state, the allowed moves.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product

import pytest

from cleveragents.core.errors import IllegalPlanMove, InvalidRequest
from cleveragents.plans.model.plan import (
    Phase,
    PhaseState,
    Plan,
    PlanState,
    ensure_plan_move,
    phase_state_text,
)

TABLE = """
action/queued          strategize/queued action/errored action/cancelled
action/errored         action/cancelled

strategize/queued      strategize/processing strategize/errored strategize/cancelled
strategize/processing  strategize/processing strategize/waiting strategize/complete strategize/errored \
                       strategize/cancelled
strategize/waiting     strategize/queued strategize/errored strategize/cancelled
strategize/complete    execute/queued strategize/queued strategize/cancelled
strategize/errored     strategize/queued strategize/cancelled apply/rejected

execute/queued         execute/processing execute/errored execute/cancelled
execute/processing     execute/processing execute/waiting execute/complete execute/errored execute/cancelled \
                       strategize/queued
execute/waiting        execute/queued execute/complete execute/errored execute/cancelled strategize/queued \
                       apply/constrained
execute/complete       apply/queued apply/rejected execute/queued execute/complete strategize/queued \
                       execute/cancelled apply/constrained
execute/errored        execute/queued execute/complete execute/cancelled apply/rejected strategize/queued \
                       apply/constrained

apply/queued           apply/processing apply/errored apply/cancelled apply/rejected
apply/processing       apply/processing apply/applied apply/constrained apply/errored apply/cancelled
apply/constrained      apply/queued execute/queued execute/complete strategize/queued apply/rejected \
                       apply/cancelled apply/constrained
apply/errored          apply/queued apply/applied apply/rejected apply/cancelled
apply/applied          apply/undone
"""

ENDED = {PlanState.CANCELLED, PlanState.APPLIED, PlanState.REJECTED, PlanState.UNDONE}
STANDINGS = list(product(Phase, PlanState))


def _phase_state(text: str) -> PhaseState:
    phase, state = text.split("/")
    return Phase(phase), PlanState(state)


def _table() -> dict[PhaseState, set[PhaseState]]:
    rows = [line.split() for line in TABLE.replace("\\\n", " ").splitlines() if line.strip()]
    return {_phase_state(now): {_phase_state(one) for one in then} for now, *then in rows}


def _possible(now: PhaseState) -> Iterator[PhaseState]:
    for wanted in STANDINGS:
        try:
            ensure_plan_move("p", now, wanted)
        except IllegalPlanMove:
            continue
        yield wanted


@pytest.mark.parametrize("now", STANDINGS, ids=phase_state_text)
def test_allows_exactly_the_moves_of_the_table(now: PhaseState) -> None:
    assert set(_possible(now)) == _table().get(now, set())


@pytest.mark.parametrize("now", [one for one in STANDINGS if one[1] in ENDED], ids=phase_state_text)
def test_only_applied_leads_on_from_a_final_state(now: PhaseState) -> None:
    undone = (Phase.APPLY, PlanState.UNDONE)
    assert set(_possible(now)) == ({undone} if now == (Phase.APPLY, PlanState.APPLIED) else set())


def test_ended_states_lead_only_to_an_undo() -> None:
    assert {state for state in PlanState if state.ended} == ENDED
    assert {state for state in PlanState if state.running} == {PlanState.QUEUED, PlanState.PROCESSING}
    met = {now for now in _reached() if not set(_possible(now)) - {(Phase.APPLY, PlanState.UNDONE)}}
    assert met == {now for now in _reached() if now[1].ended}


def _reached() -> set[PhaseState]:
    """Return every phase and state that a plan can reach."""
    found: set[PhaseState] = set()
    new = {(Phase.ACTION, PlanState.QUEUED)}
    while new:
        found |= new
        new = {then for now in new for then in _possible(now)} - found
    return found


def test_every_state_can_be_reached_and_left() -> None:
    """A row that no plan reaches, or a dead end that is not final, is a mistake in the table."""
    assert _reached() == {*_table(), *(one for row in _table().values() for one in row)}


def test_any_plan_that_has_not_ended_can_be_cancelled() -> None:
    for phase, state in _reached():
        if not state.ended:
            ensure_plan_move("p", (phase, state), (phase, PlanState.CANCELLED))


def test_only_a_running_or_failed_apply_becomes_applied() -> None:
    before = {now for now in STANDINGS if (Phase.APPLY, PlanState.APPLIED) in set(_possible(now))}
    assert before == {(Phase.APPLY, PlanState.PROCESSING), (Phase.APPLY, PlanState.ERRORED)}
    assert {now for now in STANDINGS if any(s is PlanState.APPLIED for _, s in _possible(now))} == before


def test_an_illegal_move_names_both_states_and_pickles() -> None:
    with pytest.raises(
        IllegalPlanMove, match="plan P7 is execute/waiting and cannot become apply/applied"
    ) as e:
        ensure_plan_move("P7", (Phase.EXECUTE, PlanState.WAITING), (Phase.APPLY, PlanState.APPLIED))
    assert isinstance(e.value, InvalidRequest)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)


def test_phase_state_is_a_pair() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    plan = Plan("p", "goal", "a/b", "/r", Phase.EXECUTE, PlanState.WAITING, 3, now, now)
    assert plan.phase_state == (Phase.EXECUTE, PlanState.WAITING)
    assert phase_state_text(plan.phase_state) == "execute/waiting"
    assert plan.request == {}
