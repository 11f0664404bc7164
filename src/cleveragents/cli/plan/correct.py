"""`agents plan correct`: correct a decision or add guidance, and continue the plan."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.views import as_json
from cleveragents.cli.completion import complete_model
from cleveragents.cli.output import Output, counted, format_option, printable, progress
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.api.plans.detail_views import CorrectionPreview
    from cleveragents.api.plans.views import PlanView

__all__ = ["correct_plan", "preview_lines"]

_SHOWN_FILES = 20
_NAMED_FILES = 5


@click.command("correct")
@click.argument("plan_id", metavar="PLAN[.DECISION]")
@click.argument("number", required=False, type=click.IntRange(min=1), metavar="[DECISION]")
@click.option("--guidance", metavar="TEXT", help="Correction and its reason; - reads it from stdin.")
@click.option("--append", is_flag=True, help="Keep all work; the guidance applies from now on.")
@click.option("--dry-run", is_flag=True, help="Only show the decisions and work that would be undone.")
@click.option(
    "--model", metavar="PROVIDER/NAME", shell_complete=complete_model, help="Continue with another model."
)
@click.option("--yes", is_flag=True, help="Apply the result without asking, if its checks pass.")
@format_option
@pass_session
def correct_plan(
    session: Session,
    plan_id: str,
    number: int | None,
    guidance: str | None,
    append: bool,
    dry_run: bool,
    model: str | None,
    yes: bool,
    output: Output,
) -> None:
    """Correct a decision and continue from there.

    The decision and all that follow from it are superseded, their work is undone, and the plan continues from
    there with your guidance. List the decisions with `agents plan tree PLAN`. A running plan is stopped
    first. Nothing is erased: `agents plan tree PLAN --all` shows superseded decisions, and `agents plan diff
    --between PLAN@1 PLAN` compares the result before the first correction with the present one.

    \b
    Example:
      agents plan correct 7QX2 3 --dry-run
      agents plan correct 7QX2.3 --guidance "Keep the old name as an alias"
      agents plan correct 7QX2 --append --guidance "Mention it in the changelog, too"
    """
    from cleveragents.cli.plan.work import WorkOptions, continue_plan
    from cleveragents.cli.servers import prefix_of

    plan_id, number = _split_name(plan_id, number)
    _ensure_sensible(number, guidance, append, dry_run)
    client = session.client()
    plans = client.plans
    plan = plans.get(plan_id)
    undoing = None if number is None else plans.preview_correction(plan.id, number)
    if dry_run:
        assert undoing is not None
        _show(output, undoing)
        if not output.machine_readable:
            _tell_of_trial(guidance)
        return
    words = sys.stdin.read() if guidance == "-" else guidance or ""
    if undoing is not None and undoing.edits_lost:
        progress(f"edits by hand that are undone as well: {_files(undoing.edits_lost)}")
    if plan.state.running:
        progress(f"stopping plan {plan.id} and its processes …")

    def tell(corrected: PlanView) -> None:
        _tell(corrected, undoing)

    def act() -> PlanView:
        return plans.correct(plan.id, words, decision=number, model=model)

    continue_plan(WorkOptions(client, prefix_of(session), output, yes=yes), plan, act, tell=tell)


def _split_name(plan_id: str, number: int | None) -> tuple[str, int | None]:
    """Return the plan and the number of the decision, given as two arguments or one with a dot (`7QX2.3`)."""
    name, dot, decision = plan_id.partition(".")
    if not dot:
        return plan_id, number
    if number is not None or not decision.isdecimal() or int(decision) < 1:
        raise click.UsageError(f"{plan_id!r} is not PLAN.DECISION, such as 7QX2.3")
    return name, int(decision)


def _ensure_sensible(number: int | None, guidance: str | None, append: bool, dry_run: bool) -> None:
    """Raise `click.UsageError` for options that exclude each other, and for missing options."""
    if append and (number is not None or dry_run):
        raise click.UsageError("--append undoes nothing; omit DECISION and --dry-run")
    if number is None and not append:
        raise click.UsageError("missing DECISION; list them with `agents plan tree PLAN`, or pass --append")
    if guidance is None and not dry_run:
        raise click.UsageError("missing --guidance: pass what to do instead")


def _tell_of_trial(guidance: str | None) -> None:
    """Print that nothing changed, and which options perform the correction."""
    how = "pass --guidance instead of" if guidance is None else "repeat without"
    progress(f"nothing was changed; {how} --dry-run to correct the decision")


def _tell(plan: PlanView, undoing: CorrectionPreview | None) -> None:
    made = plan.corrections[-1]
    if undoing is None:
        progress(f"correction {made.number} of plan {plan.id} applies from now on; nothing is undone")
        return
    more = len(made.superseded) - 1
    what = f"decision {made.decision} is superseded"
    if more:
        what += f", with {more} that {'follows' if more == 1 else 'follow'} from it"
    undone = "no work to undo"
    if undoing.checkpoint is not None:
        undone = f"rolled back to checkpoint {undoing.checkpoint}"
    progress(f"correction {made.number} of plan {plan.id}: {what}; {undone}")
    said = {
        "manual edits kept": _files(undoing.edits_kept),
        "manual edits undone": _files(undoing.edits_lost),
        "continuing sub-plans": ", ".join(undoing.sub_plans_kept),
        "cancelled sub-plans": ", ".join(undoing.sub_plans),
    }
    for what, which in said.items():
        if which:
            progress(f"{what}: {which}")


def _files(paths: Sequence[str]) -> str:
    """Return a text with the first few files and the total number; an empty string if there are none."""
    if not paths:
        return ""
    more = ", …" if len(paths) > _NAMED_FILES else ""
    return printable(f"{counted(len(paths), 'file')} ({', '.join(paths[:_NAMED_FILES])}{more})")


def _show(output: Output, undoing: CorrectionPreview) -> None:
    if output.machine_readable:
        output.record(as_json(undoing))
        return
    for line in preview_lines(undoing):
        click.echo(line)


def preview_lines(undoing: CorrectionPreview) -> list[str]:
    """Return the effects of a correction as lines without control characters."""
    lines = ["superseded:"]
    lines += [f"  {one.number}. {one.question} → {one.choice}" for one in undoing.superseded]
    if undoing.checkpoint is None:
        lines.append("undone: nothing; no work was done yet")
    else:
        calls = counted(undoing.calls, "call")
        lines.append(f"undone: {calls}, from checkpoint {undoing.checkpoint} on")
        lines += [f"  step: {step}" for step in undoing.steps]
        by_hand = undoing.edits_lost
        shown = undoing.files[:_SHOWN_FILES]
        lines += [f"  file: {path}{' (edited by hand)' * (path in by_hand)}" for path in shown]
        if len(undoing.files) > _SHOWN_FILES:
            lines.append(f"  … and {len(undoing.files) - _SHOWN_FILES} more files")
    lines += [f"kept: {path} (edited by hand)" for path in undoing.edits_kept]
    lines += [f"cancelled: sub-plan {child}" for child in undoing.sub_plans]
    lines += [f"continues: sub-plan {child}" for child in undoing.sub_plans_kept]
    return [printable(line) for line in lines]
