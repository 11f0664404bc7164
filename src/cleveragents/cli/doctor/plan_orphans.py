"""What crashes left of applies and runs: half-done applies, and plans whose worker died."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cleveragents.cli.doctor.orphans import NotRemoved, Orphan
from cleveragents.core.errors import UnknownJob
from cleveragents.jobs.model.job import Job, JobState
from cleveragents.plans.model.plan import Phase, Plan, PlanState, spelt

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.apply.journal import JournalEntry

__all__ = ["all_plans", "interrupted_plans", "unfinished_applies"]

_PAGE = 500


def unfinished_applies(container: Container) -> Sequence[Orphan]:
    """Applies and undos that nobody is at any more, and plans that say they are being applied."""
    from cleveragents.apply.journal import DONE, ApplyJournal
    from cleveragents.apply.recovery import is_absent

    applier = container.plan_parts.applier
    journal = ApplyJournal(container.database, container.identifiers, container.clock)
    entries = [entry for entry in journal.open_entries() if not applier.is_busy(entry.resource)]

    def mend_entry(entry: JournalEntry) -> str:
        container.plan_parts.apply.settle()
        if any(known.id == entry.id for known in journal.open_entries()):
            raise NotRemoved("a process that it started still runs, or its files cannot be changed now")
        ended = journal.get(entry.id)
        done = ended is not None and ended.state == DONE
        deed = "completed" if done else "took back"
        return f"{deed} the {entry.kind} of plan {entry.plan_id} to {entry.resource}"

    def mend_plan(plan: Plan) -> str:
        container.plan_parts.apply.settle()
        return f"plan {plan.id} is {container.plan_parts.plans.get(plan.id).state.value}; apply it again"

    def orphan_of(entry: JournalEntry) -> Orphan:
        what = f"the {entry.kind} of plan {entry.plan_id} to {entry.resource} was interrupted"
        if not is_absent(entry):
            return Orphan(what, partial(mend_entry, entry))
        advice = f"bring it back, or `agents plan delete {entry.plan_id} --yes` to give it up"
        return Orphan(f"{what}, and that is out of reach", advice=advice)

    found = [orphan_of(entry) for entry in entries]
    told = {entry.plan_id for entry in entries}
    for plan in _running(container):
        if plan.phase is Phase.APPLY and plan.id not in told and not applier.is_busy(plan.resource):
            what = f"plan {plan.id} says that it is being applied, and nobody does it"
            found.append(Orphan(what, partial(mend_plan, plan)))
    return found


def interrupted_plans(container: Container) -> Sequence[Orphan]:
    """Plans that say they are under way while whoever ran them is dead."""
    return [left for plan in _running(container) for left in _interrupted(container, plan)]


def _interrupted(container: Container, plan: Plan) -> Iterator[Orphan]:
    if plan.phase is Phase.APPLY or plan.job_id is None:
        return
    try:
        job = container.jobs.get(plan.job_id)
    except UnknownJob:
        job = None
    # A sub-plan goes on with all that it is a part of.
    resume = f"`agents plan resume {plan.root}` goes on with it"
    phase_state = spelt(plan.phase_state)
    if job is None:
        yield Orphan(f"plan {plan.id} is {phase_state}, and its job is gone", advice=resume)
    elif job.state.ended and container.plan_parts.plans.get(plan.id).version == plan.version:

        def mend() -> str:
            moved = container.plan_parts.lifecycle.reconciled(container.plan_parts.plans.get(plan.id))
            return f"plan {plan.id} is {moved.state.value} now, as its job was {job.state.value}"

        yield Orphan(f"plan {plan.id} is {phase_state}, and its job is over: {job.state.value}", mend)
    elif container.plan_parts.lifecycle.should_cancel(plan):
        settle = f"`agents plan cancel {plan.id}` settles that"
        yield Orphan(f"plan {plan.id} was to be cancelled, and its worker died before", advice=settle)
    elif job.state is JobState.RUNNING and _owner_died(container, job):
        yield Orphan(f"plan {plan.id} is {phase_state}, and its worker died", advice=resume)


def _owner_died(container: Container, job: Job) -> bool:
    """Whether that is certain; of a worker on another machine nothing is."""
    return job.owner is not None and container.processes.is_alive(job.owner) is False


def _running(container: Container) -> Iterator[Plan]:
    return all_plans(container, (PlanState.QUEUED, PlanState.PROCESSING))


def all_plans(container: Container, states: Sequence[PlanState] = ()) -> Iterator[Plan]:
    """Every plan in one of the states; in any, if none is named."""
    after: str | None = None
    while page := container.plan_parts.plans.list(states=states, limit=_PAGE, after=after):
        yield from page
        after = page[-1].id
