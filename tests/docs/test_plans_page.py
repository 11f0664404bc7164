"""The page on plans matches the domain model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from cleveragents.core.actions.model import CheckVerdict
from cleveragents.core.errors import IllegalPlanMove
from cleveragents.core.event import EventType
from cleveragents.core.tool import CallState
from cleveragents.plans.model.plan import Phase, PhaseState, PlanState, ensure_plan_move, phase_state_text
from cleveragents.plans.model.status import PlanStatus

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "plans.md"
STANDINGS = list(product(Phase, PlanState))
TOLD = (
    "plan.",
    "conflict.",
    "approval.",
    "tool_call.",
    "check.",
    "review.",
    "decision.",
    "model_call.",
    "budget.",
)


def moves() -> Iterator[str]:
    """Yield the rows of the table of moves, from the state machine."""
    for now in STANDINGS:
        then = [wanted for wanted in STANDINGS if _may(now, wanted)]
        if then:
            targets = ", ".join(f"`{phase_state_text(wanted)}`" for wanted in then)
            yield f"| `{phase_state_text(now)}` | {targets} |"


def _may(now: PhaseState, wanted: PhaseState) -> bool:
    try:
        ensure_plan_move("p", now, wanted)
    except IllegalPlanMove:
        return False
    return True


def _table(heading: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    rows = text.partition(f"\n{heading}\n|---|---|\n")[2].partition("\n\n")[0]
    assert rows, f"no table {heading!r}"
    return rows.splitlines()


def _first_column(heading: str) -> set[str]:
    return {name for row in _table(heading) for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_the_table_of_moves_is_the_state_machine() -> None:
    assert _table("| from | to |") == list(moves())


def test_every_state_and_verdict_is_explained() -> None:
    assert _first_column("| state | what it means |") == {state.value for state in PlanState}
    assert _first_column("| verdict | what it means |") == {verdict.value for verdict in CheckVerdict}


def test_every_state_of_a_call_is_named() -> None:
    [line] = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("A call is `")
    ]
    assert set(re.findall(r"`(\w+)`", line)) == {state.value for state in CallState}


def test_every_event_of_plans_is_named() -> None:
    events = {kind.value for kind in EventType if kind.value.startswith(TOLD)}
    assert _first_column("| event | when |") == events


def test_every_status_is_explained() -> None:
    named = [row.split("`")[1] for row in _table("| status | meaning |")]
    assert named == [status.value for status in PlanStatus]
