"""`agents plan correct`: says that a decision was wrong, or adds guidance, and goes on with the plan."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import found_plan
from cleveragents.api.plans.decisions import undoing_fields
from cleveragents.api.reach import ensure_reachable
from cleveragents.cli.output import Output, counted, format_option, printable, progress
from cleveragents.cli.session import Session, pass_session
from cleveragents.cli.usage import as_usage
from cleveragents.models.model.budget import Limits

if TYPE_CHECKING:
    from cleveragents.app.container import Container
    from cleveragents.core.decision import Decision
    from cleveragents.plans.corrections.correct import Undoing
    from cleveragents.plans.model.correction import Correction
    from cleveragents.plans.model.plan import Plan

__all__ = ["correct_plan", "ensure_sensible", "split_name", "tell_of_trial"]

_SHOWN_FILES = 20
_NAMED_FILES = 5


@click.command("correct")
@click.argument("plan_id", metavar="PLAN[.DECISION]")
@click.argument("number", required=False, type=click.IntRange(min=1), metavar="[DECISION]")
@click.option("--guidance", metavar="TEXT", help="What is wanted instead, and why; - reads it from stdin.")
@click.option("--append", is_flag=True, help="Undo nothing; the guidance is heeded from now on.")
@click.option("--dry-run", is_flag=True, help="Only show what would be superseded and undone.")
@click.option("--model", metavar="PROVIDER/NAME", help="Go on with another model, from now on.")
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
    """Correct a decision of a plan: it and all that followed from it no longer hold, what was done for them
    is undone, and the plan is thought through again from there, with your guidance.

    `agents plan tree PLAN` shows the decisions and their numbers. A plan that runs is stopped first. Nothing
    is erased: `agents plan tree PLAN --all` shows what was superseded, and `agents plan diff --between PLAN@1
    PLAN` compares what the plan had come to before its first correction with what it comes to now.

    \b
    Example:
      agents plan correct 7QX2 3 --dry-run
      agents plan correct 7QX2.3 --guidance "Keep the old name as an alias"
      agents plan correct 7QX2 --append --guidance "Mention it in the changelog, too"
    """
    from cleveragents.cli.plan.decisions import worked_on

    plan_id, number = split_name(plan_id, number)
    ensure_sensible(number, guidance, append, dry_run)
    container = session.container()
    parts = container.plan_parts
    parts.apply.settle()
    plan = found_plan(parts, plan_id)
    parts.correction.ensure_correctable(plan)
    ensure_reachable(parts, plan)
    if dry_run:
        assert number is not None
        _show(output, plan, parts.correction.preview(plan, number))
        if not output.for_programs:
            tell_of_trial(guidance)
        return
    if model is not None:
        from cleveragents.api.plans.spending import ensure_model_fits

        with as_usage():
            ensure_model_fits(parts, plan, model, Limits())
    words = sys.stdin.read() if guidance == "-" else guidance or ""
    undoing = None if number is None else parts.correction.preview(plan, number)
    if undoing is not None and undoing.edits_lost:
        progress(f"edits by hand that are undone with it: {_files(undoing.edits_lost)}")
    kept, plan = _corrected(container, plan, number, words, model)
    _tell(plan, kept)
    if undoing is not None:
        _tell_rest(undoing)
    worked_on(container, plan, output, yes=yes)


def split_name(plan_id: str, number: int | None) -> tuple[str, int | None]:
    """The plan and the decision, from two words or from one with a dot."""
    name, dot, decision = plan_id.partition(".")
    if not dot:
        return plan_id, number
    if number is not None or not decision.isdecimal() or int(decision) < 1:
        raise click.UsageError(f"{plan_id!r} is no PLAN.DECISION, such as 7QX2.3")
    return name, int(decision)


def ensure_sensible(number: int | None, guidance: str | None, append: bool, dry_run: bool) -> None:
    """`click.UsageError` for options that contradict each other, or say too little."""
    if append and (number is not None or dry_run):
        raise click.UsageError("--append undoes nothing, so it goes with neither a DECISION nor --dry-run")
    if number is None and not append:
        raise click.UsageError("which DECISION? `agents plan tree PLAN` shows them; or --append")
    if guidance is None and not dry_run:
        raise click.UsageError("say with --guidance what is wanted instead")


def tell_of_trial(guidance: str | None) -> None:
    """Says that nothing was changed, and how it is."""
    how = "with --guidance instead of" if guidance is None else "without"
    progress(f"nothing was changed; {how} --dry-run it is")


def _corrected(
    container: Container, plan: Plan, number: int | None, words: str, model: str | None
) -> tuple[Correction, Plan]:
    correction = container.plan_parts.correction
    if plan.state.running:
        progress(f"stopping plan {plan.id} and its processes …")
    if number is None:
        return correction.append(plan, words, model=model)
    return correction.correct(plan, number, words, model=model)


def _tell(plan: Plan, kept: Correction) -> None:
    made = kept.made
    if made.decision is None:
        progress(f"correction {kept.number} of plan {plan.id}: heeded from now on, nothing is undone")
        return
    more = len(made.superseded) - 1
    what = f"decision {made.decision} no longer holds"
    if more:
        what += f", nor {'does' if more == 1 else 'do'} {more} that came of it"
    undone = "nothing was done for it yet"
    if made.checkpoint is not None:
        undone = f"back at checkpoint {made.checkpoint}"
    progress(f"correction {kept.number} of plan {plan.id}: {what}; {undone}")


def _tell_rest(undoing: Undoing) -> None:
    """What became of what is nobody's decision: edits by hand, and sub-plans."""
    said = {
        "kept edits by hand": _files(undoing.edits_kept),
        "undone edits by hand": _files(undoing.edits_lost),
        "sub-plans that go on": ", ".join(undoing.sub_plans_kept),
        "cancelled sub-plans": ", ".join(undoing.sub_plans),
    }
    for what, which in said.items():
        if which:
            progress(f"{what}: {which}")


def _files(paths: Sequence[str]) -> str:
    """The first few, and how many there are; nothing for none."""
    if not paths:
        return ""
    more = ", …" if len(paths) > _NAMED_FILES else ""
    return printable(f"{counted(len(paths), 'file')} ({', '.join(paths[:_NAMED_FILES])}{more})")


def _show(output: Output, plan: Plan, undoing: Undoing) -> None:
    if output.for_programs:
        output.record(undoing_fields(plan, undoing))
        return
    click.echo("superseded:")
    for decision in undoing.superseded:
        click.echo(f"  {_line(decision)}")
    if undoing.checkpoint is None:
        click.echo("undone: nothing; nothing was done for it yet")
    else:
        calls = counted(undoing.calls, "call")
        click.echo(f"undone: {calls}, from checkpoint {undoing.checkpoint} on")
        for task in undoing.tasks:
            click.echo(f"  step: {printable(task)}")
        for path in undoing.paths[:_SHOWN_FILES]:
            by_hand = " (edited by hand)" if path in undoing.edits_lost else ""
            click.echo(f"  file: {printable(path)}{by_hand}")
        if len(undoing.paths) > _SHOWN_FILES:
            click.echo(f"  … and {len(undoing.paths) - _SHOWN_FILES} more files")
    for path in undoing.edits_kept:
        click.echo(f"kept: {printable(path)} (edited by hand)")
    for child in undoing.sub_plans:
        click.echo(f"cancelled: sub-plan {child}")
    for child in undoing.sub_plans_kept:
        click.echo(f"goes on: sub-plan {child}")


def _line(decision: Decision) -> str:
    return printable(f"{decision.number}. {decision.made.question} → {decision.made.choice}")
