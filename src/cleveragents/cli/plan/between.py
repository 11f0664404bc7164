"""`agents plan diff --between A B`: compares what plans have come to, now or before a correction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.plans.account import found_plan
from cleveragents.api.plans.comparing import differing_files, outcome_of, repositories_differ
from cleveragents.cli.output import Output, printable, progress
from cleveragents.cli.plan.view import shown_diff

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts

__all__ = ["show_between", "split_outcome"]

_NAMED = re.compile(r"(?P<plan>[^@]+)(?:@(?P<number>[0-9]{1,9}))?")


def show_between(
    parts: PlanParts, output: Output, names: tuple[str, str], paths: Sequence[str], options: Sequence[str]
) -> None:
    """The difference from the first to the second: files for programs, else as git writes it."""
    from cleveragents.sandboxes.outcomes import diff_between

    named = [split_outcome(name) for name in names]
    plans = [found_plan(parts, plan_id) for plan_id, _ in named]
    one, other = (outcome_of(parts, plan, before) for plan, (_, before) in zip(plans, named, strict=True))
    differ = repositories_differ(*plans)
    if differ is not None:
        progress(printable(differ))
    if output.for_programs:
        output.table(differing_files(one, other, paths), [], empty="")
        return
    text = diff_between(one, other, options=options, paths=paths)
    if not text:
        progress("nothing of that differs" if paths else "they came to the same")
    shown_diff(text)


def split_outcome(name: str) -> tuple[str, int | None]:
    """`PLAN`: what it comes to now; `PLAN@2`: what it had come to before its second correction."""
    spelt = _NAMED.fullmatch(name)
    if spelt is None:
        raise click.UsageError(f"{name!r} is neither PLAN nor PLAN@NUMBER")
    return spelt["plan"], None if spelt["number"] is None else int(spelt["number"])
