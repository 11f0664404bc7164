"""`agents demo`: six goals in parallel, in a temporary directory."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, counted, format_option, progress
from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.json_value import JsonValue, freeze
from cleveragents.models.model.budget import PICODOLLARS, dollars
from cleveragents.plans.model.status import status_of

if TYPE_CHECKING:
    from cleveragents.core.event import AuditRecord
    from cleveragents.demo.promises import Evidence, PlanRecords, Promise
    from cleveragents.demo.story import Say, Story

__all__ = ["DemoRun", "conclude", "demo"]

_TELLING = ("worker", "attempt", "error", "reason", "graph", "length", "question", "tool", "model", "verdict")
_INDENT = 12
_COLUMNS = ("plan", "goal", "status", "steps", "tokens", "cost")


@click.command()
@click.option("--keep", is_flag=True, help="Keep the directory, and print commands to explore it.")
@click.option("--verbose", "-v", is_flag=True, help="Also show the audit log.")
@format_option
@click.pass_context
def demo(ctx: click.Context, keep: bool, verbose: bool, output: Output) -> None:
    """Run a demonstration, offline and in a temporary directory.

    Six goals run in parallel in a sample repository, each with a strategist, an executor and a reviewer, in
    its own sandbox. The answers of the model are scripted; everything else is real.

    One plan fails its check and is fixed, one is rejected by the reviewer, one is cancelled while its
    processes ignore SIGTERM, and one loses its worker to kill -9 and continues in another. Of two plans that
    change the same lines, one is applied and the other refused. One is undone.

    At the end the audit log is verified and every promise is checked. The exit code is 0 only if all promises
    were kept.

    \b
    Example:
      agents demo
      agents demo --keep
      agents demo --format json | jq .promises
    """
    directory = Path(tempfile.mkdtemp(prefix="cleveragents-demo-")).resolve()
    began = time.monotonic()
    try:
        performance = _play(directory, _say, keep=keep)
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory)
        raise
    except CleverAgentsError:
        progress(f"the demo did not complete; its state is in {directory}")
        raise
    seconds = time.monotonic() - began
    ctx.exit(conclude(output, performance, directory, seconds, keep=keep, verbose=verbose))


def _say(phase: str, what: str, *details: str) -> None:
    progress(f"{phase:<{_INDENT}}{what}")
    for line in details:
        progress(f"{'':{_INDENT + 2}}{line}")


@dataclass(frozen=True, slots=True)
class DemoRun:
    """The played story, the evidence it left, and the judged promises."""

    story: Story
    evidence: Evidence
    promises: Sequence[Promise]

    @property
    def kept(self) -> bool:
        return all(promise.kept for promise in self.promises)


def _play(directory: Path, say: Say, *, keep: bool) -> DemoRun:
    from msgspec.structs import replace

    from cleveragents.app.container import Container
    from cleveragents.config.logging import configure_logging
    from cleveragents.demo.promises import gather, judge
    from cleveragents.demo.story import demo_settings, tell

    settings = demo_settings(directory)
    # The demo kills workers on purpose; their warnings are not shown.
    configure_logging(replace(settings, log=replace(settings.log, level="error")))
    with Container(settings) as container:
        story = tell(container, say, keeps_sandboxes=keep)
        evidence = gather(container, story)
        return DemoRun(story, evidence, judge(story, evidence))


def conclude(
    output: Output,
    performance: DemoRun,
    directory: Path,
    seconds: float,
    *,
    keep: bool = False,
    verbose: bool = False,
) -> int:
    """Print the outcome and return the exit code. Removes the directory if there is nothing to inspect."""
    _show(output, performance, seconds, verbose)
    if not performance.kept:
        progress(f"a promise was broken; the state is in {directory}")
        return 1
    if keep:
        _tell_how_to_look(performance, directory)
    else:
        shutil.rmtree(directory)
    return 0


def _show(output: Output, performance: DemoRun, seconds: float, verbose: bool) -> None:
    plans, promises = _plan_rows(performance), _promise_rows(performance)
    events = _event_rows(performance)
    kept, most = performance.kept, performance.evidence.most_at_once
    if output.machine_readable:
        facts = {
            "kept": kept,
            "seconds": round(seconds, 1),
            "most_plans_at_once": most,
            "plans": plans,
            "promises": promises,
            "events": events,
        }
        output.record({name: freeze(value) for name, value in facts.items()})
        return
    if verbose:
        output.title("The audit log")
        output.table(events, ["position", "at", "event", "of", "facts"], empty="no events")
    output.title("The plans")
    output.table(plans, _COLUMNS, empty="no plans", cut=["goal"], spare=["tokens"])
    output.title("The promises")
    output.table(promises, ["kept", "promise", "shown_by"], empty="")
    verdict = f"{counted(len(promises), 'promise')} kept" if kept else "NOT all promises kept"
    click.echo(f"{counted(len(plans), 'plan')}, up to {most} in parallel; {verdict}; {seconds:.1f} s")


def _tell_how_to_look(performance: DemoRun, directory: Path) -> None:
    ids = performance.story.ids
    progress("")
    progress("The directory is kept. Explore it, then remove it:")
    for line in (
        f"cd {shlex.quote(str(directory / 'paint-shop'))}",
        f"export CLEVERAGENTS_STATE_DIRECTORY={shlex.quote(str(directory))}",
        "agents plan list",
        f"agents plan tree {ids['discount']}",
        f"agents plan log {ids['catalogue']}",
        f"agents plan diff {ids['tax']}",
        f"agents plan undo {ids['discount']} && agents plan apply {ids['tax']}",
        "agents events verify",
    ):
        progress(f"  {line}")


def _plan_rows(performance: DemoRun) -> list[dict[str, JsonValue]]:
    return [
        {
            "plan": label,
            "goal": account.plan.goal,
            "status": status_of(account.plan.phase, account.plan.state).value,
            "state": account.plan.state.value,
            "steps": account.budget.spent.steps,
            "tokens": f"{account.budget.spent.tokens:,}",
            "cost": dollars(account.budget.spent.picodollars),
            "id": account.plan.id,
            "error": account.plan.error,
            "workers": tuple(performance.evidence.workers_of(label)),
            **_counts(account),
        }
        for label, account in performance.evidence.accounts.items()
    ]


def _counts(account: PlanRecords) -> dict[str, JsonValue]:
    return {
        "usd": account.budget.spent.picodollars / PICODOLLARS,
        "decisions": len(account.decisions),
        "tool_calls": len(account.calls),
        "checks": tuple(f"{run.name}: {run.verdict.value}" for run in account.checks),
    }


def _promise_rows(performance: DemoRun) -> list[dict[str, JsonValue]]:
    return [
        {"promise": promise.what, "kept": promise.kept, "shown_by": promise.shown_by}
        for promise in performance.promises
    ]


def _event_rows(performance: DemoRun) -> list[dict[str, JsonValue]]:
    records = performance.evidence.records
    return [
        {
            "position": record.position,
            "at": f"{(record.event.occurred_at - records[0].event.occurred_at).total_seconds():.2f} s",
            "event": record.event.event_type.value,
            "of": _label(performance, record),
            "facts": _facts(record),
        }
        for record in records
    ]


def _label(performance: DemoRun, record: AuditRecord) -> str:
    """Return the label of the plan that an event belongs to, directly or by its job or run."""
    facts = record.event.payload
    names = [record.event.subject, *(facts.get(name) for name in ("plan_id", "message_id", "thread_id"))]
    for label, account in performance.evidence.accounts.items():
        for known in filter(None, (account.plan.id, account.plan.job_id)):
            if any(isinstance(name, str) and known in name for name in names):
                return label
    return record.event.subject


def _facts(record: AuditRecord) -> str:
    said = {
        name: value for name, value in record.event.payload.items() if name in _TELLING and value is not None
    }
    return ", ".join(f"{name} {value}" for name, value in said.items())
