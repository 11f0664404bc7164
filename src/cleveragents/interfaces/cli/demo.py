"""`agents demo`: everything at work, on a stage of its own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.domain.json_value import JsonValue, freeze
from cleveragents.errors import CleverAgentsError
from cleveragents.interfaces.cli.output import Output, counted, format_option, progress

if TYPE_CHECKING:
    from cleveragents.application.ports.events import AuditRecord
    from cleveragents.interfaces.demo.patience import Say
    from cleveragents.interfaces.demo.plan_promises import PlanEvidence
    from cleveragents.interfaces.demo.promise import Promise
    from cleveragents.interfaces.demo.promises import Evidence
    from cleveragents.interfaces.demo.story import Story

__all__ = ["Performance", "conclude", "demo"]

_SHOWN_EVENTS = 12
_TELLING = ("worker", "attempt", "error", "reason", "failures", "graph", "length")


@click.command()
@click.option(
    "--verbose", "-v", is_flag=True, help=f"Show the whole audit log, not the last {_SHOWN_EVENTS} events."
)
@format_option
@click.pass_context
def demo(ctx: click.Context, verbose: bool, output: Output) -> None:
    """Show it all at work, offline, without touching your state.

    Plans run at once on a sample repository. Two are applied to the same files, one is refused because you
    edited the same line, one is undone, one cancelled, one killed with kill -9 and resumed.

    Three worker processes run LangGraph graphs as jobs. One job, whose processes ignore SIGTERM, is
    cancelled. One worker is killed with kill -9 in the middle of a job, and a peer goes on with it.

    At the end the audit log is verified and every promise is checked; the exit code is 0 only if all were
    kept.

    \b
    Example:
      agents demo
      agents demo --verbose
      agents demo --format json | jq .promises
    """
    directory = Path(tempfile.mkdtemp(prefix="cleveragents-demo-"))
    began = time.monotonic()

    def say(what: str, *details: str) -> None:
        progress(f"{time.monotonic() - began:5.1f} s  {what}")
        for line in details:
            progress(f"{'':11}{line}")

    try:
        performance = _play(directory, say)
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory)
        raise
    except CleverAgentsError:
        progress(f"the demo could not be completed; what happened is in {directory}")
        raise
    seconds = time.monotonic() - began
    ctx.exit(conclude(output, performance, directory, seconds, verbose=verbose))


@dataclass(frozen=True, slots=True)
class Performance:
    """What was played, what it left, and the judgement."""

    story: Story
    evidence: Evidence
    plans: PlanEvidence | None
    promises: Sequence[Promise]

    @property
    def kept(self) -> bool:
        return all(promise.kept for promise in self.promises)


def _play(directory: Path, say: Say) -> Performance:
    from cleveragents.application.container import Container
    from cleveragents.infrastructure.logging import configure_logging
    from cleveragents.interfaces.demo.plan_promises import gather_plans, judge_plans
    from cleveragents.interfaces.demo.promises import gather, judge
    from cleveragents.interfaces.demo.story import demo_settings, tell

    settings = demo_settings(directory)
    # Deaths that the story tells of itself are no news.
    configure_logging(settings.model_copy(update={"log": settings.log.model_copy(update={"level": "error"})}))
    with Container(settings) as container:
        story = tell(container, say)
        evidence = gather(container)
        plans = gather_plans(container, story.plans)
        promises = judge_plans(container, story.plans, plans, evidence) + judge(container, story, evidence)
        return Performance(story, evidence, plans, promises)


def conclude(
    output: Output, performance: Performance, directory: Path, seconds: float, *, verbose: bool = False
) -> int:
    """Shows what happened; returns the exit code. The directory goes if there is nothing to look into."""
    _show(output, performance, seconds, verbose)
    if not performance.kept:
        progress(f"a promise was not kept; what happened is in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


def _show(output: Output, performance: Performance, seconds: float, verbose: bool) -> None:
    events = _event_rows(performance)
    jobs = _job_rows(performance)
    plans = _plan_rows(performance)
    promises = _promise_rows(performance)
    kept = performance.kept
    if output.for_programs:
        facts = {
            "kept": kept,
            "seconds": round(seconds, 1),
            "plans": plans,
            "jobs": jobs,
            "promises": promises,
            "events": events,
        }
        output.record({name: freeze(value) for name, value in facts.items()})
        return
    shown = events if verbose else events[-_SHOWN_EVENTS:]
    part = f": the last {len(shown)} of {len(events)} events (`agents demo --verbose` shows all)"
    output.title(f"The audit log{part if len(shown) < len(events) else ''}")
    output.table(shown, ["position", "at", "event", "of", "facts"], empty="there are no events")
    output.title("The plans")
    output.table(plans, ["plan", "action", "state", "error"], empty="there are no plans")
    output.title("The jobs")
    output.table(jobs, ["job", "state", "attempts", "workers"], empty="there are no jobs")
    output.title("The promises")
    output.table(promises, ["kept", "promise", "shown_by"], empty="")
    verdict = f"{counted(len(promises), 'promise')} kept" if kept else "NOT every promise was kept"
    verified = "verified" if not performance.evidence.problems else "NOT verified"
    click.echo(f"{counted(len(events), 'event')}, {verified}; {verdict}; {seconds:.1f} s")


def _job_rows(performance: Performance) -> list[dict[str, JsonValue]]:
    evidence = performance.evidence
    return [
        {
            "job": performance.story.labels[job.id],
            "state": job.state.value,
            "attempts": job.attempt,
            "workers": " → ".join(evidence.workers_of(job.id)),
            "id": job.id,
        }
        for job in evidence.jobs.values()
    ]


def _plan_rows(performance: Performance) -> list[dict[str, JsonValue]]:
    if performance.plans is None:
        return []
    diffs = performance.story.plans.diffs
    return [
        {
            "plan": label,
            "action": plan.action,
            "state": plan.state.value,
            "error": plan.error,
            "id": plan.id,
            "diff": diffs.get(label),
        }
        for label, plan in performance.plans.plans.items()
    ]


def _promise_rows(performance: Performance) -> list[dict[str, JsonValue]]:
    return [
        {"promise": promise.what, "kept": promise.kept, "shown_by": promise.shown_by}
        for promise in performance.promises
    ]


def _event_rows(performance: Performance) -> list[dict[str, JsonValue]]:
    records = performance.evidence.records
    return [
        {
            "position": record.position,
            "at": f"{(record.event.occurred_at - records[0].event.occurred_at).total_seconds():.2f} s",
            "event": record.event.event_type.value,
            "of": _label(performance.story, record),
            "facts": _facts(record),
        }
        for record in records
    ]


def _label(story: Story, record: AuditRecord) -> str:
    """Whom the event is about, in the story's words: the job, or the job behind a run or a changeset."""
    facts = record.event.payload
    for name in (record.event.subject, facts.get("message_id"), facts.get("plan_id")):
        if isinstance(name, str) and name in story.labels:
            return story.labels[name]
    return record.event.subject


def _facts(record: AuditRecord) -> str:
    said = {
        name: value for name, value in record.event.payload.items() if name in _TELLING and value is not None
    }
    return ", ".join(f"{name} {value}" for name, value in said.items())
