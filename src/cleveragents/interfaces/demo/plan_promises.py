"""What was promised about plans, judged from the repository, the database and the process table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleveragents.domain.event import EventType
from cleveragents.domain.plan import Plan, PlanState
from cleveragents.errors import GitFailed
from cleveragents.interfaces.cli.output import counted
from cleveragents.interfaces.demo.plan_story import COUNTED, LICENCE, RESUMER, STEPS, PlanStory, sample_of
from cleveragents.interfaces.demo.promise import Promise
from cleveragents.interfaces.demo.sample import FILES, NOTES, NOTES_TEXT, SampleRepository

if TYPE_CHECKING:
    from cleveragents.application.container import Container
    from cleveragents.application.ports.events import AuditRecord
    from cleveragents.interfaces.demo.promises import Evidence

__all__ = ["PlanEvidence", "gather_plans", "judge_plans"]

_SOURCES = tuple(path for path in FILES if path.startswith("src/"))
_CHANGELOG = "CHANGELOG.md"
_PINS = "refs/cleveragents"


@dataclass(frozen=True, slots=True)
class PlanEvidence:
    """What is there at the end, of plans and in the repository. `files` lacks what does not exist."""

    plans: Mapping[str, Plan]
    files: Mapping[str, str]
    refs: str
    damage: str
    open_applies: int
    sandboxes: Sequence[str]
    laid_out: Sequence[str]


def gather_plans(container: Container, story: PlanStory) -> PlanEvidence:
    """Everything that the judgement needs."""
    from cleveragents.infrastructure.apply.journal import ApplyJournal

    parts = container.plan_parts
    sample = sample_of(container)
    looked_at = [*FILES, NOTES, COUNTED, _CHANGELOG]
    journal = ApplyJournal(container.database, container.identifiers, container.clock)
    staging = sample.root / ".git" / "cleveragents"
    return PlanEvidence(
        plans={label: parts.plans.get(plan_id) for label, plan_id in story.ids.items()},
        files={path: text for path in looked_at if (text := sample.text(path)) is not None},
        refs=sample.refs(),
        damage=_damage(sample),
        open_applies=len(journal.open_entries()),
        sandboxes=[path.name for path in sorted(parts.sandboxes.directory.glob("*"))]
        + [row.plan_id for row in parts.sandboxes.rows()],
        laid_out=[path.name for path in sorted(staging.glob("*"))],
    )


def judge_plans(
    container: Container, story: PlanStory, found: PlanEvidence, evidence: Evidence
) -> list[Promise]:
    """Every promise about plans, kept or not."""
    return [
        _isolated(story, found),
        _both_applied(found),
        _refused_whole(story, found, evidence),
        _undone_alone(found),
        *_cancelled(container, story, found),
        _resumed(story, found, evidence),
        _all_or_nothing(found, evidence),
        _repository_kept(story, found),
        _no_leftovers(found),
    ]


def _isolated(story: PlanStory, found: PlanEvidence) -> Promise:
    results = sum(bool(diff) for diff in story.diffs.values())
    kept = story.when_ready == story.before != "" and results == len(story.diffs) > 0
    changed = "none of your files changed" if story.when_ready == story.before else "your files CHANGED"
    return Promise("nothing is written before you apply it", kept, f"{results} results ready, {changed}")


def _both_applied(found: PlanEvidence) -> Promise:
    sources = [found.files.get(path, "") for path in _SOURCES]
    licensed = sum(text.startswith(f"{LICENCE}\n") and text.count(LICENCE) == 1 for text in sources)
    spelt = not any("colour" in text for text in sources) and any("color" in text for text in sources)
    states = [found.plans[label].state for label in ("spelling", "licence")]
    kept = states == [PlanState.APPLIED] * 2 and licensed == len(_SOURCES) and spelt
    return Promise("two plans that edit the same files both apply", kept, f"{licensed} files have both")


def _refused_whole(story: PlanStory, found: PlanEvidence, evidence: Evidence) -> Promise:
    """The plan changed two files, of which the user has edited one: neither is written."""
    plan = found.plans["release"]
    refused = _reached(evidence.records, plan.id, PlanState.CONSTRAINED)
    both_sides = "1.1" in story.refusal and "2.0" in story.refusal
    kept_edit = 'VERSION = "1.1"' in found.files.get("src/version.py", "")
    untouched = found.files.get("README.md") == FILES["README.md"]
    kept = refused and both_sides and kept_edit and untouched and plan.state is PlanState.REJECTED
    shown = "both sides shown, your line kept, README.md untouched" if kept else "an edit was lost"
    return Promise("what conflicts with your edit is refused, all of it", kept, shown)


def _undone_alone(found: PlanEvidence) -> Promise:
    gone = _CHANGELOG not in found.files
    kept = gone and found.plans["changelog"].state is PlanState.UNDONE
    shown = f"{_CHANGELOG} is {'gone' if gone else 'still there'}"
    return Promise("undo takes out one plan, and no other", kept, shown)


def _cancelled(container: Container, story: PlanStory, found: PlanEvidence) -> Iterator[Promise]:
    alive = container.processes.alive(story.endless_marker)
    kept = len(story.endless_pids) > 0 and not alive
    kept = kept and found.plans["endless"].state is PlanState.CANCELLED
    still = counted(len(alive), "is alive", "are alive")
    shown = f"there were {len(story.endless_pids)}, SIGTERM ignored; {still}"
    yield Promise("no process of a cancelled plan survives", kept, shown)
    kept = story.second_cancel == PlanState.CANCELLED.value
    yield Promise("a plan is cancelled once", kept, f"already {story.second_cancel}")


def _resumed(story: PlanStory, found: PlanEvidence, evidence: Evidence) -> Promise:
    plan = found.plans["counting"]
    workers = evidence.workers_of(str(plan.job_id))
    counted_lines = found.files.get(COUNTED, "").split()
    kept = plan.state is PlanState.APPLIED and workers == [story.killed_worker, RESUMER]
    kept = kept and counted_lines == [str(n) for n in range(1, STEPS + 1)]
    kept = kept and 0 < story.steps_before_kill < STEPS
    shown = f"{story.steps_before_kill} steps before the kill, {len(counted_lines)} of {STEPS} in all"
    return Promise("a killed plan goes on, and does nothing twice", kept, shown)


def _all_or_nothing(found: PlanEvidence, evidence: Evidence) -> Promise:
    begun = evidence.count(EventType.APPLY_STARTED)
    ended = evidence.count(EventType.APPLY_ENDED)
    kept = begun == ended > 0 and found.open_applies == 0 and not found.laid_out
    return Promise("every apply is done, or not at all", kept, f"{begun} began, {ended} ended")


def _repository_kept(story: PlanStory, found: PlanEvidence) -> Promise:
    same = found.refs == story.refs_before != ""
    kept = same and not found.damage and found.files.get(NOTES) == NOTES_TEXT
    shown = "all as they were, git fsck is content" if kept else found.damage or "something is different"
    return Promise("branches, index, stash and uncommitted files stay", kept, shown)


def _no_leftovers(found: PlanEvidence) -> Promise:
    pins = found.refs.count(_PINS)
    kept = not found.sandboxes and pins == 0
    shown = f"{counted(len(found.sandboxes), 'sandbox', 'sandboxes')}, {counted(pins, 'ref')}"
    return Promise("no sandbox and no ref of ours is left", kept, shown)


def _reached(records: Sequence[AuditRecord], plan_id: str, state: PlanState) -> bool:
    moves = [r.event for r in records if r.event.event_type is EventType.PLAN_MOVED]
    return any(move.subject == plan_id and move.payload.get("state") == state.value for move in moves)


def _damage(sample: SampleRepository) -> str:
    try:
        sample.git("fsck", "--full", "--strict", "--no-dangling")
    except GitFailed as error:
        return str(error)
    return ""
