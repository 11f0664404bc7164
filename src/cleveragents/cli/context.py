"""`agents context`: what of a repository matters for a question."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.output import Output, format_option
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.context.code_index import CodePlace

__all__ = ["context", "question_of", "refuse_file"]

_LARGEST_QUESTION = 4_000_000
_FIND_SECONDS = 10.0
_INDEX_SECONDS = 3600.0
"""Whoever waits at a terminal sees how far the index is, and may interrupt it; what is done is kept."""


@click.command()
@click.argument("words", nargs=-1, metavar="QUESTION")
@click.option("-f", "--file", metavar="FILE", help="Read the question from a file; `-` is stdin.")
@click.option(
    "--in", "directory", metavar="DIRECTORY", help="Look there, in the whole repository that it lies in."
)
@click.option("--at", "commit", metavar="COMMIT", help="Look at a commit instead of the files as they are.")
@click.option("--budget", type=int, metavar="TOKENS", help="The most that the answer may take, 64 at least.")
@click.option(
    "--deadline", type=float, metavar="SECONDS", help="The longest that it may take, indexing included."
)
@click.option("--files", "only_files", is_flag=True, help="List the files that matter, the best first.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="How many files are listed: 20, and all for programs, if not said.",
)
@click.option("--explain", is_flag=True, help="Say who found what, and what became of each strategy.")
@format_option
@pass_session
def context(
    session: Session,
    words: tuple[str, ...],
    file: str | None,
    directory: str | None,
    commit: str | None,
    budget: int | None,
    deadline: float | None,
    only_files: bool,
    limit: int | None,
    explain: bool,
    output: Output,
) -> None:
    """Find what of a repository matters for a question, within a budget of tokens.

    QUESTION is a sentence, an error message, a whole issue; `-` reads it from stdin. It works in any
    directory, in git or not, with no model and no network. The first question in a repository builds an
    index of it, beside your other state; later ones only look at what changed.

    \b
    Example:
      agents context "Where is the session cookie signed?"
      agents context --files --explain "TypeError: can't compare offset-naive and offset-aware datetimes"
      agents context --file issue.md --budget 16000 --format json
    """
    from cleveragents.cli.render.context_view import show_answer
    from cleveragents.cli.render.index_progress import IndexBar
    from cleveragents.context.query import ContextQuery

    settings = session.configuration().settings.context
    asked = question_of(" ".join(words) if words else None, file)
    place, nothing = _place(directory, commit, deadline)
    with IndexBar() as bar:
        answer = session.container().context_parts.lone_pipeline.ask(
            ContextQuery(
                question=asked,
                place=place,
                budget_tokens=settings.budget_tokens if budget is None else budget,
                deadline_seconds=settings.deadline_seconds if deadline is None else deadline,
                index_seconds=_INDEX_SECONDS if deadline is None else None,
                fragments=not only_files,
                progress=bar.moved,
            )
        )
    show_answer(answer, output, only_files=only_files, limit=limit, explain=explain, nothing=nothing)


def question_of(given: str | None, file: str | None) -> str:
    """What was asked, as words or in a file. `click.UsageError`."""
    if given is not None and file is not None:
        raise click.UsageError("say the question or --file, not both")
    if given is None and file is None:
        raise click.UsageError(
            'say what you want to know: agents context "QUESTION", or --file FILE, or `-` for stdin'
        )
    if given is not None and given != "-":
        return given
    # Bytes that are no text, as in a pasted log, are left out rather than refused.
    return _read(None if file in (None, "-") else file).decode("utf-8", "replace")


def _read(file: str | None) -> bytes:
    """The file's first part, or stdin's."""
    if file is None:
        source = getattr(sys.stdin, "buffer", None)
        return sys.stdin.read().encode() if source is None else source.read(_LARGEST_QUESTION)
    try:
        with Path(file).open("rb") as stream:
            return stream.read(_LARGEST_QUESTION)
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {str(error.strerror).lower()}") from None


def _place(directory: str | None, commit: str | None, deadline: float | None) -> tuple[CodePlace, str | None]:
    """The repository that the directory lies in, or the directory; and why nothing will be found there, if
    nothing is."""
    from cleveragents.api.context_account import has_no_files
    from cleveragents.context.code_index import CodePlace
    from cleveragents.core.errors import SandboxRefused
    from cleveragents.sandboxes.resources import find_resource

    here = Path(directory) if directory is not None else Path.cwd()
    refuse_file(here)
    try:
        # However little time there is: a healthy repository answers in a second, and is not taken for none.
        seconds = _FIND_SECONDS if deadline is None else min(_FIND_SECONDS, max(1.0, deadline / 4))
        root, _ = find_resource(here, seconds=seconds)
    except SandboxRefused as refused:
        # A bare repository has no files, but commits, and where git does not answer there are still files;
        # all else the index knows how to refuse.
        root = here.resolve()
        otherwise = ", or say --at COMMIT" if "bare repository" in refused.reason else ""
        nothing: str | None = f"{refused.reason}{otherwise}"
    else:
        nothing = f"there is no file in {root}" if has_no_files(root) else None
    return CodePlace(root, commit), None if commit else nothing


def refuse_file(where: Path) -> None:
    """`click.UsageError` for a file in the place of a directory."""
    if where.is_file():
        raise click.UsageError(f"{where} is no directory; a question in a file is asked with --file")
