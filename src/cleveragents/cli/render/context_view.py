"""Printing of answers about a repository."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, Styled, counted, printable, progress, write
from cleveragents.core.text.control_characters import escape_controls

if TYPE_CHECKING:
    from cleveragents.api.context import ContextView, FindingView, FragmentView, RankedFileView
    from cleveragents.core.json_value import JsonValue

__all__ = ["show_answer"]

_FILES_LISTED = 20
_COLUMNS = ("place", "depth", "tokens", "score", "found_by")


def show_answer(
    answer: ContextView, output: Output, *, only_files: bool, limit: int | None, explain: bool
) -> None:
    """Print an answer in the requested format; notes go to stderr in every format."""
    from cleveragents.api.views import as_json

    if output.machine_readable:
        said = as_json(answer)
        ranked = {name: said[name][:limit] for name in ("files", "ranking")}
        output.record({**said, **ranked, "fragments": () if only_files else said["fragments"]})
    elif only_files:
        _files(answer.ranking[: limit or _FILES_LISTED], output, explain=explain)
    else:
        _text(answer, output)
    if explain and not output.machine_readable:
        _explained(answer, output, with_fragments=not only_files)
    for note in answer.notes:
        progress(f"note: {note}")
    if not answer.files and not answer.fragments and not output.machine_readable and not answer.notes:
        progress("nothing found; try other words, such as names or error messages")


def _files(files: Sequence[RankedFileView], output: Output, *, explain: bool) -> None:
    if not explain:
        for file in files:
            click.echo(printable(file.path))
        return
    rows: list[dict[str, JsonValue]] = [
        {"path": file.path, "score": f"{file.score:.3f}", "found_by": _words(file.found_by)} for file in files
    ]
    output.table(rows, ["path", "score", "found_by"], empty="no files found")


def _text(answer: ContextView, output: Output) -> None:
    for line in answer.text.split("\n"):
        shown = escape_controls(line, keep_lines=True)
        write(Styled(shown, bold=output.human_readable and line.startswith("### ")))
    took = f"{counted(len(answer.fragments), 'fragment')}, {answer.tokens:,} of {answer.budget:,} tokens"
    progress(f"{took}, {answer.took_ms} ms")


def _explained(answer: ContextView, output: Output, *, with_fragments: bool) -> None:
    if with_fragments and answer.fragments:
        output.title("fragments")
        output.table([_explained_fragment(fragment) for fragment in answer.fragments], _COLUMNS, empty="")
    output.title("strategies")
    rows: list[dict[str, JsonValue]] = [
        {
            "strategy": one.name,
            "status": one.status.replace("_", " "),
            "found": one.found,
            "ms": one.ms,
            "why": one.error or ("truncated" if one.truncated else ""),
        }
        for one in answer.strategies
    ]
    output.table(rows, ["strategy", "status", "found", "ms", "why"], empty="no strategies")


def _explained_fragment(fragment: FragmentView) -> dict[str, JsonValue]:
    lines = "" if fragment.lines is None else f":{fragment.lines[0]}-{fragment.lines[1]}"
    return {
        "place": f"{fragment.path}{lines}",
        "depth": fragment.depth,
        "tokens": fragment.tokens,
        "score": f"{fragment.score:.3f}",
        "found_by": _words(fragment.found_by),
    }


def _words(findings: Iterable[FindingView]) -> str:
    """Return `keyword title 0.91, symbols 0.40`: each strategy once, with its strongest signal."""
    best: dict[str, FindingView] = {}
    for found in sorted(findings, key=lambda found: -found.score):
        best.setdefault(found.strategy, found)
    return ", ".join(f"{one.strategy} {one.signal}".strip() + f" {one.score:.2f}" for one in best.values())
