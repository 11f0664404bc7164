"""An answer of the context pipeline as it is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.api.context_account import context_account
from cleveragents.cli.output import Output, Styled, counted, printable, progress, write
from cleveragents.core.text.control_characters import escape_controls

if TYPE_CHECKING:
    from cleveragents.context.model.code import Span
    from cleveragents.context.model.context_answer import ContextAnswer, Finding, PackedFragment, RankedPlace
    from cleveragents.core.json_value import JsonValue

__all__ = ["show_answer"]

_FILES_LISTED = 20


def show_answer(
    answer: ContextAnswer,
    output: Output,
    *,
    only_files: bool,
    limit: int | None,
    explain: bool,
    nothing: str | None = None,
) -> None:
    """Prints it as was asked for; what went differently is said on stderr, in every format. `nothing` is why
    there is nothing to be found, if that is known."""
    if output.for_programs:
        output.record(context_account(answer, only_files=only_files, limit=limit))
    elif only_files:
        _files(answer.files[: limit or _FILES_LISTED], output, explain=explain)
    else:
        _text(answer, output)
    if explain and not output.for_programs:
        _explained(answer, output, with_fragments=not only_files)
    for note in answer.notes:
        progress(f"note: {note}")
    if not answer.files and not answer.fragments and not output.for_programs and not answer.notes:
        advice = "; other words may help, names and error messages most"
        progress(f"nothing was found{advice if nothing is None else f': {nothing}'}")


def _files(files: Sequence[RankedPlace], output: Output, *, explain: bool) -> None:
    if not explain:
        for place in files:
            click.echo(printable(place.path))
        return
    rows: list[dict[str, JsonValue]] = [
        {"path": place.path, "score": f"{place.score:.3f}", "found_by": _words(place.findings)}
        for place in files
    ]
    output.table(rows, ["path", "score", "found_by"], empty="no file was found")


def _text(answer: ContextAnswer, output: Output) -> None:
    for line in answer.text.split("\n"):
        shown = escape_controls(line, keep_lines=True)
        write(Styled(shown, bold=output.for_eyes and line.startswith("### ")))
    took = f"{counted(len(answer.fragments), 'fragment')}, {answer.tokens:,} of {answer.budget:,} tokens"
    progress(f"{took}, {answer.seconds * 1000:.0f} ms")


def _explained(answer: ContextAnswer, output: Output, *, with_fragments: bool) -> None:
    if with_fragments and answer.fragments:
        output.title("fragments")
        output.table([_explained_fragment(fragment) for fragment in answer.fragments], _COLUMNS, empty="")
    output.title("strategies")
    rows: list[dict[str, JsonValue]] = [
        {
            "strategy": report.name,
            "status": report.status.value.replace("_", " "),
            "found": len(report.fragments),
            "ms": round(report.seconds * 1000),
            "why": report.error or ("more than is kept" if report.truncated else ""),
        }
        for report in answer.strategies
    ]
    output.table(rows, ["strategy", "status", "found", "ms", "why"], empty="no strategy was asked")


_COLUMNS = ("place", "depth", "tokens", "score", "found_by")


def _explained_fragment(fragment: PackedFragment) -> dict[str, JsonValue]:
    place, rendering = fragment.place, fragment.rendering
    return {
        "place": f"{place.path}{_lines(place.span)}",
        "depth": rendering.depth.value,
        "tokens": rendering.tokens,
        "score": f"{place.score:.3f}",
        "found_by": _words(place.findings),
    }


def _lines(span: Span | None) -> str:
    return "" if span is None else f":{span.first}-{span.last}"


def _words(findings: Iterable[Finding]) -> str:
    """`keyword title 0.91, symbols 0.40`: each strategy once, by the signal that said most for the place."""
    best: dict[str, Finding] = {}
    for found in sorted(findings, key=lambda found: -found.score):
        best.setdefault(found.strategy, found)
    return ", ".join(f"{one.strategy} {one.signal}".strip() + f" {one.score:.2f}" for one in best.values())
