"""Plans that wait for the reset of a provider's usage limit.

Such a plan is *parked*: its state is waiting, its pending request contains the time of the reset, and its job
is queued until that time. A worker then continues the plan without a person, and no thread waits. All
functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import asdict

from cleveragents.core.errors import Remedy, UsageLimited, remedies_record
from cleveragents.core.identifiers import WorkerIdentity
from cleveragents.core.json_value import JsonValue
from cleveragents.plans.model.plan import Plan, PlanState

__all__ = [
    "PROCESS",
    "USAGE_LIMIT",
    "UsageWaits",
    "is_parked",
    "parked_until",
    "reset_time",
    "usage_limit_request",
    "wait_seconds",
    "waiting_process",
]

USAGE_LIMIT = "usage limit"
"""The reason of a plan that waits for the reset of a usage limit."""

PROCESS = "process"
"""The field of the pending request that names the waiting process. It is not for people."""

_FIRST_SECONDS = 15 * 60.0
_MARGIN_SECONDS = 1.0
_MOST_DOUBLINGS = 30


def is_parked(plan: Plan) -> bool:
    """Return whether the plan waits for the reset of a usage limit."""
    return parked_until(plan) is not None


def parked_until(plan: Plan) -> datetime | None:
    """Return the time at which a parked plan continues; None for other plans."""
    return reset_time(plan.state, plan.waiting_for)


def reset_time(state: PlanState, waiting_for: object) -> datetime | None:
    """Return the time at which a plan with this state and pending request continues; None if it is not
    parked.
    """
    waited = waiting_for if isinstance(waiting_for, Mapping) else {}
    if state is not PlanState.WAITING or waited.get("for") != USAGE_LIMIT:
        return None
    try:
        until = datetime.fromisoformat(str(waited.get("until")))
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return until if until.tzinfo else until.replace(tzinfo=UTC)


class UsageWaits(Struct, frozen=True):
    """The waits of a plan for usage limits since it was last resumed: their number and their sum."""

    count: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, plan: Plan) -> UsageWaits:
        """Return the waits of a parked plan, including the current one."""
        waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
        count, seconds = waited.get("waits"), waited.get("waited_seconds")
        if not isinstance(count, int) or not isinstance(seconds, int | float):
            return cls()  # parked by an earlier version
        return cls(count, float(seconds))

    def and_another(self, seconds: float) -> UsageWaits:
        return UsageWaits(self.count + 1, self.seconds + seconds)


def waiting_process(plan: Plan) -> WorkerIdentity | None:
    """Return the process that waits to continue a parked plan; None if any worker may continue it, or if no
    process is known.
    """
    waited = plan.waiting_for if isinstance(plan.waiting_for, Mapping) else {}
    match waited.get(PROCESS):
        case {"id": str(name), "host": str(host), "pid": int(pid), "started_ticks": int(ticks)}:
            return WorkerIdentity(name, host, pid, ticks) if is_parked(plan) else None
    return None


def usage_limit_request(
    plan_id: str,
    limited: UsageLimited,
    until: datetime,
    waits: UsageWaits,
    process: WorkerIdentity | None = None,
) -> JsonValue:
    """Return the pending request of a plan that is parked until the given time; `waits` includes this wait.
    `process` is set if only this process may continue the plan.
    """
    what = f"{limited.model}: the usage limit is reached ({limited.problem})"
    resume = Remedy("plan.resume", plan_id, text="Resume the plan now")
    return {
        "for": USAGE_LIMIT,
        "what": what,
        "until": until.astimezone(UTC).isoformat(),
        "waits": waits.count,
        "waited_seconds": waits.seconds,
        **({} if process is None else {PROCESS: asdict(process)}),
        **remedies_record((resume,)),
    }


def wait_seconds(reset_seconds: float | None, earlier: UsageWaits, most_seconds: float) -> float | None:
    """Return the seconds for which a plan is parked; None if all waits together would exceed `most_seconds`.

    Without a known reset, the waits double from 15 minutes on, and the last wait is shortened to fit.
    """
    left = most_seconds - earlier.seconds
    if reset_seconds is not None:
        wait = reset_seconds + _MARGIN_SECONDS
        return wait if wait <= left else None
    wait = min(_FIRST_SECONDS * 2 ** min(earlier.count, _MOST_DOUBLINGS), left)
    return wait if wait > 0 else None
