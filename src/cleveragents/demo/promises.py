"""The promises of the demo, judged from the evidence at its end: the repository, the database and the process
table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.cli.output import counted
from cleveragents.core.actions.model import REVIEW, CheckRun, CheckVerdict
from cleveragents.core.decision import Decision
from cleveragents.core.errors import GitFailed
from cleveragents.core.event import EventType
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.demo.sample import (
    CATALOGUE,
    CHECK,
    FILES,
    LIMITS,
    LINES,
    NOTES,
    NOTES_TEXT,
    SampleRepository,
)
from cleveragents.demo.story import READY, Story, sample_of
from cleveragents.jobs.model.job import marker_of
from cleveragents.models.model.budget import Spend, dollars, exceeded
from cleveragents.models.ports import BudgetState
from cleveragents.plans.model.plan import Plan, PlanState

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.core.event import AuditRecord

__all__ = ["Evidence", "PlanRecords", "Promise", "gather", "judge"]


_READING = {"read", "grep", "glob", "list"}
_PASSED, _FAILED = CheckVerdict.PASSED, CheckVerdict.FAILED

_PINS = "refs/cleveragents/"
_ENDINGS = (
    EventType.JOB_SUCCEEDED,
    EventType.JOB_FAILED,
    EventType.JOB_CANCELLED,
    EventType.JOB_RECLAIMED,
)


def judge(story: Story, found: Evidence) -> list[Promise]:
    """Return every promise of the demo, kept or not."""
    return [
        _decided_by_reading(found),
        _isolated(story),
        _fixed(found),
        _sent_back(found),
        _refused_whole(story, found),
        _merged(story),
        _undone_alone(found),
        _cancelled(story, found),
        _resumed(story, found),
        _all_or_nothing(found),
        _within_budget(found),
        _repository_kept(story, found),
        _verified(found),
        _nothing_left(story, found),
    ]


def _decided_by_reading(found: Evidence) -> Promise:
    calls = [
        call
        for account in found.accounts.values()
        for call in account.calls
        if call.strategy_step == "strategize"
    ]
    decisions = [decision for account in found.accounts.values() for decision in account.decisions]
    read_only = all(call.tool in _READING and call.changeset_id is None for call in calls)
    reasoned = all(decision.made.rationale and decision.made.alternatives for decision in decisions)
    kept = read_only and reasoned and all(account.decisions for account in found.accounts.values())
    looked = counted(len(calls), "reading call")
    shown = f"{counted(len(decisions), 'decision')} with reasons, {looked}"
    return Promise("strategists only read, and give reasons", kept and bool(calls), shown)


def _isolated(story: Story) -> Promise:
    kept = story.when_ready == story.before != ""
    changed = "your files unchanged" if kept else "your files CHANGED"
    return Promise("no file changes before apply", kept, f"{len(READY)} results ready, {changed}")


def _fixed(found: Evidence) -> Promise:
    """Judge whether the failed plan was applied only after its check passed, like all applied plans."""
    applied = [a for a in found.accounts.values() if a.plan.state in (PlanState.APPLIED, PlanState.UNDONE)]
    runs = {account.plan.id: _verdicts(account.checks, CHECK) for account in applied}
    receipt = found.accounts["receipt"]
    verdicts = _verdicts(receipt.checks, CHECK)
    kept = verdicts[:1] == [_FAILED] and receipt.plan.state is PlanState.APPLIED
    kept = kept and all(of_plan[-1:] == [_PASSED] for of_plan in runs.values())
    failed = sum(verdict is _FAILED for of_plan in runs.values() for verdict in of_plan)
    total = sum(map(len, runs.values()))
    shown = f"{failed} of {total} runs failed; all {len(runs)} applied plans pass"
    return Promise("failed checks are fixed before apply", kept, shown)


def _sent_back(found: Evidence) -> Promise:
    every = [v for account in found.accounts.values() for v in _verdicts(account.checks, REVIEW)]
    kept = _verdicts(found.accounts["welcome"].checks, REVIEW) == [_FAILED, _PASSED]
    refused = sum(verdict is _FAILED for verdict in every)
    shown = f"{refused} of {len(every)} reviews rejected, then accepted"
    return Promise("rejected results are fixed", kept, shown)


def _refused_whole(story: Story, found: Evidence) -> Promise:
    """Judge whether a plan that conflicts in one of its three files left all three unchanged."""
    states = [found.accounts[label].plan.state for label in ("discount", "tax")]
    both_sides = "* 90 / 100" in story.refusal and "* 119 / 100" in story.refusal
    prices = found.files.get("prices.sh", "")
    first_only = "* 90 / 100" in prices and "119" not in prices
    others = found.files.get("test_prices.sh") == FILES["test_prices.sh"]
    others = others and "tax" not in found.files.get("README.md", "")
    kept = states == [PlanState.APPLIED, PlanState.CONSTRAINED] and both_sides and first_only and others
    shown = "discount applied, none of tax's changes written" if kept else "their changes are MIXED UP"
    return Promise("a conflicting plan is refused completely", kept, shown)


def _merged(story: Story) -> Promise:
    kept = story.merged.startswith("# Paint shop in Main Street\n") and "Welcome to our shop!" in story.merged
    shown = f"README.md {'has' if kept else 'LACKS one of'} your title and its welcome"
    return Promise("apply merges with your edits", kept, shown)


def _undone_alone(found: Evidence) -> Promise:
    expected = FILES["README.md"].replace("# Paint shop", "# Paint shop in Main Street")
    only_yours = found.files.get("README.md") == expected
    state = found.accounts["welcome"].plan.state
    shown = f"README.md has {'your title, no welcome' if only_yours else 'NOT your edit'}"
    kept = only_yours and state is PlanState.UNDONE
    return Promise("undo reverts one plan only", kept, shown)


def _cancelled(story: Story, found: Evidence) -> Promise:
    state = found.accounts["simulation"].plan.state
    kept = len(story.pids) > 0 and not found.alive and state is PlanState.CANCELLED
    kept = kept and story.second_cancel == PlanState.CANCELLED.value
    shown = f"{len(found.alive)} of {counted(len(story.pids), 'process', 'processes')} are alive"
    return Promise("no process of a cancelled plan survives", kept, shown)


def _resumed(story: Story, found: Evidence) -> Promise:
    account = found.accounts["catalogue"]
    ended = [call for call in account.calls if call.state is CallState.ENDED]
    once = len({call.step for call in ended}) == len(ended)
    survived = set(story.calls_before_kill) <= {call.number for call in ended}
    wanted = "Our colours\n" + "".join(f"colour {n}\n" for n in range(1, LINES + 1))
    workers = found.workers_of("catalogue")
    kept = workers[:1] == [story.killed_worker] and len(workers) == 2 and workers[1] != story.killed_worker
    kept = kept and account.plan.state is PlanState.APPLIED and found.files.get(CATALOGUE) == wanted
    kept = kept and once and survived and 0 < story.lines_before_kill < LINES
    before = len(story.calls_before_kill)
    twice = "none twice" if once else "some TWICE"
    shown = f"{' → '.join(workers)}, {before} + {len(ended) - before} calls, {twice}"
    return Promise("a killed plan resumes and repeats no call", kept, shown)


def _all_or_nothing(found: Evidence) -> Promise:
    begun, ended = found.count(EventType.APPLY_STARTED), found.count(EventType.APPLY_ENDED)
    kept = begun == ended > 0 and found.open_applies == 0 and not found.laid_out
    return Promise("every apply is complete or has no effect", kept, f"{begun} started, {ended} ended")


def _within_budget(found: Evidence) -> Promise:
    budgets = [account.budget for account in found.accounts.values()]
    kept = all(not exceeded(LIMITS, b.spent) and b.reserved == Spend() for b in budgets)
    most = max(b.spent.picodollars for b in budgets)
    shown = f"{dollars(most)} of {dollars(LIMITS.picodollars or 0)} at most"
    return Promise("no plan exceeds its budget", kept and most > 0, shown)


def _repository_kept(story: Story, found: Evidence) -> Promise:
    same = found.refs == story.refs_before != ""
    kept = same and not found.damage and found.files.get(NOTES) == NOTES_TEXT
    shown = "unchanged; git fsck finds no errors" if kept else found.damage or "some of them DIFFER"
    return Promise("branches, index, stash and notes stay", kept, shown)


def _verified(found: Evidence) -> Promise:
    shown = f"{counted(len(found.records), 'event')}, verified" if not found.problems else found.problems[0]
    return Promise("the audit log is intact", not found.problems and bool(found.records), shown)


def _nothing_left(story: Story, found: Evidence) -> Promise:
    """Judge whether only the plan that waits for a person has a sandbox and a ref."""
    wanted = set(story.ids.values()) if story.keeps_sandboxes else {story.ids["tax"]}
    ended = [code for name, code in story.exit_codes.items() if name != story.killed_worker]
    kept = found.sandboxes == wanted and found.pins == len(wanted)
    kept = kept and not found.left_over and set(ended) == {0}
    boxes = counted(len(found.sandboxes), "sandbox", "sandboxes")
    why = "as requested" if story.keeps_sandboxes else "of the refused plan"
    shown = f"{counted(len(found.left_over), 'process', 'processes')}; {boxes}, {why}"
    return Promise("no orphans remain", kept, shown)


def _verdicts(runs: Sequence[CheckRun], command: str) -> list[CheckVerdict]:
    """Return the verdicts in order; `REVIEW` names the reviewer, other checks are named by their command."""
    return [run.verdict for run in runs if command in (run.name, run.command)]


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise, whether it was kept, and the evidence."""

    what: str
    kept: bool
    shown_by: str


@dataclass(frozen=True, slots=True)
class PlanRecords:
    """All records of one plan."""

    plan: Plan
    decisions: Sequence[Decision]
    calls: Sequence[ToolCall]
    checks: Sequence[CheckRun]
    budget: BudgetState


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that promises are judged by.

    `files` has no entry for a missing file. `refs` are the user's refs; `pins` counts the refs of
    CleverAgents.
    """

    accounts: Mapping[str, PlanRecords]
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
        """Return the workers of the plan, in order."""
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
        """The maximum number of plans that ran in parallel."""
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
    """Collect the evidence, with the audit log verified."""
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


def _account(container: Container, plan_id: str) -> PlanRecords:
    parts = container.plan_parts
    return PlanRecords(
        plan=parts.plans.get(plan_id),
        decisions=parts.actor_parts.decisions.of_plan(plan_id),
        calls=parts.history.calls(plan_id),
        checks=parts.check_runs.of_plan(plan_id),
        budget=parts.actor_parts.budgets.view(plan_id),
    )


def _left_over(container: Container) -> list[int]:
    """Return the living processes of all attempts of all jobs."""
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
