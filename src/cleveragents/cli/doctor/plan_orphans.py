"""Orphans of applies and runs: interrupted applies, and plans whose worker died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cleveragents.api.plans.status_text import plan_status
from cleveragents.cli.doctor.orphans import NotRemoved, Orphan
from cleveragents.core.errors import UnknownJob
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.plans.model.plan import Phase, Plan, PlanState

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.apply.journal import JournalEntry

__all__ = ["all_plans", "interrupted_plans", "unfinished_applies"]

_PAGE = 500


def unfinished_applies(container: Container) -> Sequence[Orphan]:
    """Return interrupted applies and undos, and plans in the apply phase without a process."""
    from cleveragents.apply.journal import DONE, ApplyJournal
    from cleveragents.apply.recovery import is_absent

    applier = container.plan_parts.applier
    journal = ApplyJournal(container.database, container.identifiers, container.clock)
    entries = [entry for entry in journal.open_entries() if not applier.is_busy(entry.resource)]

    def fix_entry(entry: JournalEntry) -> str:
        container.plan_parts.apply.settle()
        if any(known.id == entry.id for known in journal.open_entries()):
            raise NotRemoved("a process of the apply still runs, or its files cannot be changed now")
        ended = journal.get(entry.id)
        done = ended is not None and ended.state == DONE
        deed = "completed" if done else "reverted"
        return f"{deed} the {entry.kind} of plan {entry.plan_id} to {entry.resource}"

    def fix_plan(plan: Plan) -> str:
        container.plan_parts.apply.settle()
        now = container.plan_parts.plans.get(plan.id)
        return f"plan {plan.id} is {_status_of(container, now)}; apply it again"

    def orphan_of(entry: JournalEntry) -> Orphan:
        what = f"the {entry.kind} of plan {entry.plan_id} to {entry.resource} was interrupted"
        if not is_absent(entry):
            return Orphan(what, partial(fix_entry, entry))
        advice = (
            f"restore the repository, or give the plan up with `agents plan delete {entry.plan_id} --yes`"
        )
        return Orphan(f"{what}, and the repository is out of reach", advice=advice)

    found = [orphan_of(entry) for entry in entries]
    told = {entry.plan_id for entry in entries}
    for plan in _running(container):
        if plan.phase is Phase.APPLY and plan.id not in told and not applier.is_busy(plan.resource):
            what = f"plan {plan.id} counts as being applied, but no process applies it"
            found.append(Orphan(what, partial(fix_plan, plan)))
    return found


def interrupted_plans(container: Container) -> Sequence[Orphan]:
    """Return plans that count as running although their worker died."""
    return [left for plan in _running(container) for left in _interrupted(container, plan)]


def _interrupted(container: Container, plan: Plan) -> Iterator[Orphan]:
    if plan.phase is Phase.APPLY or plan.job_id is None:
        return
    try:
        job = container.jobs.get(plan.job_id)
    except UnknownJob:
        job = None
    # A sub-plan resumes with the plan at the top.
    resume = f"resume it with `agents plan resume {plan.root}`"
    status = _status_of(container, plan)
    if job is None:
        yield Orphan(f"plan {plan.id} is {status}, but its job is gone", advice=resume)
    elif job.state.ended and container.plan_parts.plans.get(plan.id).version == plan.version:

        def fix() -> str:
            moved = container.plan_parts.lifecycle.reconciled(container.plan_parts.plans.get(plan.id))
            return f"plan {plan.id} is {_status_of(container, moved)} now: its job has ended"

        yield Orphan(f"plan {plan.id} is {status}, but its job has ended ({job.state.value})", fix)
    elif container.plan_parts.lifecycle.should_cancel(plan):
        settle = f"cancel it with `agents plan cancel {plan.id}`"
        yield Orphan(f"plan {plan.id} was being cancelled when its worker died", advice=settle)
    elif job.state is JobState.RUNNING and _owner_died(container, job):
        yield Orphan(f"plan {plan.id} is {status}, but its worker died", advice=resume)


def _status_of(container: Container, plan: Plan) -> str:
    return plan_status(container.plan_parts, plan).value


def _owner_died(container: Container, job: Job) -> bool:
    """Return whether the job's worker is known to be dead. Always False for a worker on another machine."""
    return job.owner is not None and container.processes.is_alive(job.owner) is False


def _running(container: Container) -> Iterator[Plan]:
    return all_plans(container, (PlanState.QUEUED, PlanState.PROCESSING))


def all_plans(container: Container, states: Sequence[PlanState] = ()) -> Iterator[Plan]:
    """Yield every plan in one of the states; all plans if `states` is empty."""
    after: str | None = None
    while page := container.plan_parts.plans.list(states=states, limit=_PAGE, after=after):
        yield from page
        after = page[-1].id
