"""Plans as a state machine: a goal goes through four phases.

    action ─▶ strategize ─▶ execute ─▶ apply
       each: queued ─▶ processing ─▶ complete | errored | cancelled;  processing ─▶ waiting ─▶ queued
       apply ends: applied | constrained | rejected | errored | cancelled;  applied ─▶ undone

An answer queues a waiting plan again, so no process has to stay alive while the plan waits. Apply never
waits: a plan whose result needs approval stays at execute/complete.

Every move increments the plan's `version`. A store moves a plan only from the version that its caller read,
so one of two concurrent moves wins and the other gets an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum

from msgspec import Struct, field

from cleveragents.access.model.project import DEFAULT_PROJECT
from cleveragents.core.errors import IllegalPlanMove
from cleveragents.core.json_value import FrozenObject, JsonValue
from cleveragents.core.policy import Isolation

__all__ = ["Phase", "PhaseState", "Plan", "PlanState", "ensure_plan_move", "phase_state_text"]


class Phase(str, Enum):
    """The phase of a plan."""

    ACTION = "action"
    STRATEGIZE = "strategize"
    EXECUTE = "execute"
    APPLY = "apply"


class PlanState(str, Enum):
    """The state of a plan within its phase."""

    QUEUED = "queued"
    PROCESSING = "processing"
    WAITING = "waiting"
    COMPLETE = "complete"
    ERRORED = "errored"
    CANCELLED = "cancelled"
    APPLIED = "applied"
    CONSTRAINED = "constrained"
    REJECTED = "rejected"
    UNDONE = "undone"

    @property
    def running(self) -> bool:
        """Whether a process works on the plan, or is to claim it."""
        return self in (PlanState.QUEUED, PlanState.PROCESSING)

    @property
    def ended(self) -> bool:
        """Whether the state is final, except for an undo."""
        return self in (PlanState.CANCELLED, PlanState.APPLIED, PlanState.REJECTED, PlanState.UNDONE)


PhaseState = tuple[Phase, PlanState]

_A, _S, _E, _P = Phase.ACTION, Phase.STRATEGIZE, Phase.EXECUTE, Phase.APPLY
_Q, _PR, _W, _C = PlanState.QUEUED, PlanState.PROCESSING, PlanState.WAITING, PlanState.COMPLETE
_ERR, _CAN = PlanState.ERRORED, PlanState.CANCELLED
_APPLIED, _CON, _REJ = PlanState.APPLIED, PlanState.CONSTRAINED, PlanState.REJECTED


def _moves(phase: Phase, then: PhaseState | None) -> dict[PhaseState, frozenset[PhaseState]]:
    """Return the moves within a phase, and the move to the next phase. Every phase has the same moves."""
    onward = {then} if then else set()
    return {
        (phase, _Q): frozenset({(phase, _PR), (phase, _ERR), (phase, _CAN)}),
        # To itself: another worker takes over from one that died.
        (phase, _PR): frozenset({(phase, s) for s in (_PR, _W, _C, _ERR, _CAN)}),
        # To strategize: its decisions are corrected, by a person or by the plan itself.
        (phase, _W): frozenset({(phase, _Q), (phase, _ERR), (phase, _CAN), (_S, _Q)}),
        (phase, _C): frozenset({(phase, _Q), (phase, _CAN), (_S, _Q), *onward}),
        (phase, _ERR): frozenset({(phase, _Q), (phase, _CAN), (_P, _REJ), (_S, _Q)}),
        (phase, _CAN): frozenset(),
    }


_MOVES: Mapping[PhaseState, frozenset[PhaseState]] = {
    (_A, _Q): frozenset({(_S, _Q), (_A, _ERR), (_A, _CAN)}),
    (_A, _ERR): frozenset({(_A, _CAN)}),
    (_A, _CAN): frozenset(),
    **_moves(_S, (_E, _Q)),
    **_moves(_E, (_P, _Q)),
    # To strategize: the result shows that the plan was wrong, and the plan goes back by itself.
    (_E, _PR): frozenset({(_S, _Q), *((_E, s) for s in (_PR, _W, _C, _ERR, _CAN))}),
    # To complete or constrained: a revision is withdrawn, and the result from before it is as it was.
    (_E, _W): frozenset({(_E, _Q), (_E, _ERR), (_E, _CAN), (_S, _Q), (_E, _C), (_P, _CON)}),
    (_E, _ERR): frozenset({(_E, _Q), (_E, _CAN), (_P, _REJ), (_S, _Q), (_E, _C), (_P, _CON)}),
    (_E, _C): frozenset({(_P, _Q), (_P, _REJ), (_E, _Q), (_S, _Q), (_E, _CAN), (_E, _C), (_P, _CON)}),
    (_P, _Q): frozenset({(_P, _PR), (_P, _ERR), (_P, _CAN), (_P, _REJ)}),
    (_P, _PR): frozenset({(_P, s) for s in (_PR, _APPLIED, _CON, _ERR, _CAN)}),
    (_P, _CON): frozenset({(_P, _Q), (_P, _REJ), (_P, _CAN), (_E, _Q), (_S, _Q), (_E, _C), (_P, _CON)}),
    # To applied: the user's files decide, whatever the plan recorded.
    (_P, _ERR): frozenset({(_P, _Q), (_P, _APPLIED), (_P, _REJ), (_P, _CAN)}),
    (_P, _CAN): frozenset(),
    (_P, _REJ): frozenset(),
    (_P, _APPLIED): frozenset({(_P, PlanState.UNDONE)}),
    (_P, PlanState.UNDONE): frozenset(),
}


def ensure_plan_move(plan_id: str, now: PhaseState, wanted: PhaseState) -> None:
    """Raise `IllegalPlanMove` unless a plan may move from `now` to `wanted`."""
    if wanted not in _MOVES.get(now, frozenset()):
        raise IllegalPlanMove(plan_id, phase_state_text(now), phase_state_text(wanted))


def phase_state_text(phase_state: PhaseState) -> str:
    """Return the phase and state as text, such as `execute/waiting`."""
    return f"{phase_state[0].value}/{phase_state[1].value}"


class Plan(Struct, frozen=True):
    """A plan as the store holds it: a snapshot, never updated in place.

    `resource` is the root of the repository or directory to change. `request` is the request of the user
    (action, arguments, checks, profile, starting point) as JSON; `strategy` is the result of Strategize. A
    sub-plan has a parent, a `depth` below the root, and a `key` by which its parent knows it. It belongs to
    the `project` of its root. `isolation` is the weakest isolation of its commands over all runs; None before
    the first run, and for plans of versions that did not record it. `answer` is the last report of the
    executor; None until there is one.
    """

    id: str
    goal: str
    action: str
    resource: str
    phase: Phase
    state: PlanState
    version: int
    created_at: datetime
    updated_at: datetime
    request: Mapping[str, JsonValue] = field(default_factory=lambda: FrozenObject({}))
    strategy: JsonValue = None
    waiting_for: JsonValue = None
    error: str | None = None
    job_id: str | None = None
    parent_id: str | None = None
    root_id: str | None = None
    depth: int = 0
    key: str | None = None
    project: str = DEFAULT_PROJECT
    isolation: Isolation | None = None
    answer: str | None = None

    @property
    def root(self) -> str:
        """The plan at the top of the tree: itself, unless it is a sub-plan."""
        return self.root_id or self.id

    @property
    def phase_state(self) -> PhaseState:
        return self.phase, self.state
