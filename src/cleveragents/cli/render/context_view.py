"""Printing of answers about a repository."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, Styled, ansi, colour, counted, printable, progress, write
from cleveragents.core.text.control_characters import escape_controls

if TYPE_CHECKING:
    from cleveragents.api.context import (
        ContextView,
        DefinitionView,
        FindingView,
        FragmentView,
        RankedFileView,
    )
    from cleveragents.core.json_value import JsonValue

__all__ = ["AnswerOptions", "show_answer"]

_FILES_LISTED = 20
_COLUMNS = ("place", "depth", "tokens", "score", "found_by")
_TAKEN_LINES = 12
"""Lines of a screen for the headings, the summary and the prompt after it."""
_LEAST_LISTED = 3
_LEAST_PLACE = 16


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """The parts of an answer to show."""

    only_files: bool = False
    everything: bool = False
    limit: int | None = None
    explain: bool = False


def show_answer(answer: ContextView, output: Output, options: AnswerOptions) -> None:
    """Print an answer in the requested format. Notes go to stderr in every format, before the answer: a note
    that nothing seems related must be read first.
    """
    for note in answer.notes:
        progress(f"note: {note}")
    if output.machine_readable:
        _record(answer, output, options)
    elif options.only_files:
        _files(answer.ranking[: options.limit or _FILES_LISTED], output, explain=options.explain)
    elif output.human_readable:
        _screen(answer, output, options)
    else:
        _text(answer.text.split("\n"))
        progress(_summary(answer))
    if options.explain and not output.machine_readable:
        _explained(answer, output, with_fragments=not options.only_files)
    if not answer.files and not answer.fragments and not output.machine_readable and not answer.notes:
        progress("nothing found; try other words, such as names or error messages")


def _record(answer: ContextView, output: Output, options: AnswerOptions) -> None:
    from cleveragents.api.views import as_json

    said = as_json(answer)
    ranked = {name: said[name][: options.limit] for name in ("files", "ranking", "definitions")}
    output.record({**said, **ranked, "fragments": () if options.only_files else said["fragments"]})


def _screen(answer: ContextView, output: Output, options: AnswerOptions) -> None:
    """Print the best definitions, then the best files, on one screen; with `everything` all of them and the
    code, in a pager if they are longer than the screen.
    """
    if options.everything:
        _paged([*_listed(answer), *answer.text.split("\n")])
        progress(_summary(answer))
        return
    room = max(2 * _LEAST_LISTED, get_terminal_size().lines - _TAKEN_LINES)
    definitions = answer.definitions[: options.limit or room - room // 3]
    files = answer.ranking[: options.limit or room - len(definitions)]
    if definitions:
        output.title("definitions")
        output.table(
            [_definition_row(one) for one in definitions],
            ["definition", "place", "score", "reason"],
            empty="",
            cut=("definition", "reason"),
            spare=("score",),
        )
    if files:
        output.title("files")
        output.table(
            [{"file": file.path, "score": f"{file.score:.2f}"} for file in files],
            ["file", "score"],
            empty="",
            cut=("file",),
        )
        left = {
            "definition": len(answer.definitions) - len(definitions),
            "file": len(answer.files) - len(files),
        }
        more = " and ".join(counted(number, f"more {name}") for name, number in left.items() if number)
        progress(f"{more}; --all shows them with the code" if more else "--all shows the code")


def _listed(answer: ContextView) -> list[str]:
    """Return all definitions and files, one per line."""
    definitions = [
        f"{one.score:.2f}  {one.path}:{one.lines[0]}  {one.name}  ({'; '.join(one.reasons)})"
        for one in answer.definitions
    ]
    files = [f"{file.score:.2f}  {file.path}" for file in answer.ranking]
    return ["### definitions", *definitions, "", "### files", *files, ""]


def _definition_row(one: DefinitionView) -> dict[str, JsonValue]:
    return {
        "definition": one.name.rpartition(".")[2],  # with its class, it would be cut
        "place": _end(f"{one.path}:{one.lines[0]}"),
        "score": f"{one.score:.2f}",
        "reason": "; ".join(one.reasons),
    }


def _end(place: str) -> str:
    """Return the end of a place, because a person needs the name of the file and the line."""
    room = max(_LEAST_PLACE, get_terminal_size().columns // 3)
    return place if len(place) <= room else f"…{place[1 - room :]}"


def _paged(lines: Sequence[str]) -> None:
    if not sys.stdout.isatty() or len(lines) <= get_terminal_size().lines:
        _text(lines)
        return
    # The pager gets escaped text, because its output to the terminal is not filtered.
    click.echo_via_pager("".join(f"{ansi(_line(line))}\n" for line in lines), color=colour())


def _text(lines: Sequence[str]) -> None:
    for line in lines:
        write(_line(line))


def _line(line: str) -> Styled:
    return Styled(escape_controls(line, keep_lines=True), bold=line.startswith("### "))


def _summary(answer: ContextView) -> str:
    took = f"{counted(len(answer.fragments), 'fragment')}, {answer.tokens:,} of {answer.budget:,} tokens"
    return f"{took}, {answer.took_ms} ms"


def _files(files: Sequence[RankedFileView], output: Output, *, explain: bool) -> None:
    if not explain:
        for file in files:
            click.echo(printable(file.path))
        return
    rows: list[dict[str, JsonValue]] = [
        {"path": file.path, "score": f"{file.score:.3f}", "found_by": _words(file.found_by)} for file in files
    ]
    output.table(rows, ["path", "score", "found_by"], empty="no files found")


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
