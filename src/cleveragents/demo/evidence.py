"""What is there at the end of the demo: in the repository, the database and the process table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.core.actions.check import CheckRun
from cleveragents.core.decision import Decision
from cleveragents.core.errors import GitFailed
from cleveragents.core.event import EventType
from cleveragents.core.tool import ToolCall
from cleveragents.demo.sample import CATALOGUE, FILES, NOTES, SampleRepository
from cleveragents.demo.story import Story, sample_of
from cleveragents.jobs.worker.attempt import marker_of
from cleveragents.models.budget_ports import BudgetView
from cleveragents.plans.model.plan import Plan

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.core.event_ports import AuditRecord

__all__ = ["Account", "Evidence", "gather"]

_PINS = "refs/cleveragents/"
_ENDINGS = (
    EventType.JOB_SUCCEEDED,
    EventType.JOB_FAILED,
    EventType.JOB_CANCELLED,
    EventType.JOB_RECLAIMED,
)


@dataclass(frozen=True, slots=True)
class Account:
    """All that is kept of one plan."""

    plan: Plan
    decisions: Sequence[Decision]
    calls: Sequence[ToolCall]
    checks: Sequence[CheckRun]
    budget: BudgetView


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is found. `files` lacks what does not exist, `refs` what we hold ourselves: those are `pins`."""

    accounts: Mapping[str, Account]
    records: Sequence[AuditRecord]
    problems: Sequence[str]
    files: Mapping[str, str]
    refs: str
    pins: int
    damage: str
    open_applies: int
    laid_out: Sequence[str]
    sandboxes: frozenset[str]
    alive: Sequence[int]
    left_over: Sequence[int]

    def workers_of(self, label: str) -> list[str]:
        """Who ran the plan, in the order in which they did."""
        job_id = self.accounts[label].plan.job_id
        return [
            str(record.event.payload["worker"])
            for record in self.records
            if record.event.event_type is EventType.JOB_CLAIMED and record.event.subject == job_id
        ]

    def count(self, event_type: EventType) -> int:
        return sum(record.event.event_type is event_type for record in self.records)

    @property
    def most_at_once(self) -> int:
        """Plans that ran at the same time."""
        running: set[str] = set()
        most = 0
        for record in self.records:
            if record.event.event_type is EventType.JOB_CLAIMED:
                running.add(record.event.subject)
            elif record.event.event_type in _ENDINGS:
                running.discard(record.event.subject)
            most = max(most, len(running))
        return most


def gather(container: Container, story: Story) -> Evidence:
    """Everything that the judgement needs, with the audit log verified."""
    from cleveragents.apply.journal import ApplyJournal

    report = container.audit.verify()
    records: list[AuditRecord] = []
    while page := container.audit.read(after=len(records)):
        records += page
    sandboxes = container.plan_parts.sandboxes
    sample = sample_of(container)
    refs = sample.refs().splitlines(keepends=True)
    journal = ApplyJournal(container.database, container.identifiers, container.clock)
    looked_at = [*FILES, NOTES, CATALOGUE, "test_discount.sh", "test_receipt.sh"]
    return Evidence(
        accounts={label: _account(container, plan_id) for label, plan_id in story.ids.items()},
        records=records,
        problems=[str(finding) for finding in report.findings],
        files={path: text for path in looked_at if (text := sample.text(path)) is not None},
        refs="".join(line for line in refs if _PINS not in line),
        pins=sum(_PINS in line for line in refs),
        damage=_damage(sample),
        open_applies=len(journal.open_entries()),
        laid_out=[path.name for path in sorted((sample.root / ".git" / "cleveragents").glob("*"))],
        sandboxes=frozenset(path.name for path in sandboxes.directory.glob("*"))
        | {row.plan_id for row in sandboxes.rows()},
        alive=container.processes.alive(story.marker) if story.marker else [],
        left_over=_left_over(container),
    )


def _account(container: Container, plan_id: str) -> Account:
    parts = container.plan_parts
    return Account(
        plan=parts.plans.get(plan_id),
        decisions=parts.thinking.decisions.of_plan(plan_id),
        calls=parts.history.calls(plan_id),
        checks=parts.check_runs.of_plan(plan_id),
        budget=parts.thinking.budgets.view(plan_id),
    )


def _left_over(container: Container) -> list[int]:
    """Processes of any attempt at any job."""
    return [
        pid
        for job in container.jobs.list(limit=1000)
        for fence in range(1, job.fence + 1)
        for pid in container.processes.alive(marker_of(job.id, fence))
    ]


def _damage(sample: SampleRepository) -> str:
    try:
        sample.git("fsck", "--full", "--strict", "--no-dangling")
    except GitFailed as error:
        return str(error)
    return ""
