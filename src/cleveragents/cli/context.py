"""`agents context`: find the code relevant to a question."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cleveragents.cli.local_only import goes_to_server
from cleveragents.cli.output import Output, format_option
from cleveragents.cli.session import Session, pass_session

__all__ = ["context", "question_of"]

_LARGEST_QUESTION = 4_000_000


@click.command()
@click.argument("words", nargs=-1, metavar="QUESTION")
@click.option("-f", "--file", metavar="FILE", help="Read the question from a file; `-` is stdin.")
@click.option("--in", "directory", metavar="DIRECTORY", help="Search the repository of this directory.")
@click.option("--resource", metavar="NAME", help="Search this resource of the server.")
@click.option("--at", "commit", metavar="COMMIT", help="Search a commit instead of the current files.")
@click.option("--budget", type=int, metavar="TOKENS", help="Token limit of the answer, at least 64.")
@click.option("--deadline", type=float, metavar="SECONDS", help="Time limit, with indexing.")
@click.option("--files", "only_files", is_flag=True, help="List the relevant files, best first.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Maximum number of listed files. Default: 20; all with JSON.",
)
@click.option("--all", "everything", is_flag=True, help="Show everything that was found, with its code.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show the strategies and what each of them found.",
)
@format_option
@pass_session
def context(
    session: Session,
    words: tuple[str, ...],
    file: str | None,
    directory: str | None,
    resource: str | None,
    commit: str | None,
    budget: int | None,
    deadline: float | None,
    only_files: bool,
    limit: int | None,
    everything: bool,
    explain: bool,
    output: Output,
) -> None:
    """Find the code relevant to a question.

    QUESTION is a sentence, an error message or a whole issue; `-` reads it from stdin. The command searches
    the current repository or directory, without a model. A terminal shows the best definitions with the
    reasons, then the best files; `--all` adds the code. Elsewhere the command prints the best code within a
    budget of tokens, for a model. The first question builds an index in the state directory; later ones
    update it. A server searches its resource for the current repository, or the one you name.

    \b
    Example:
      agents context "Where is the session cookie signed?"
      agents context --all "Where is the session cookie signed?"
      agents context --files --explain "TypeError: can't compare offset-naive and offset-aware datetimes"
      agents context --file issue.md --budget 16000 --format json
    """
    from cleveragents.cli.render.context_view import AnswerOptions, show_answer
    from cleveragents.cli.render.index_progress import IndexBar

    asked = question_of(" ".join(words) if words else None, file)
    if directory is not None and resource is not None:
        raise click.UsageError("pass --in or --resource, not both")
    here = Path.cwd() if directory is None else Path(directory)
    if here.is_file():
        raise click.UsageError(f"{here} is not a directory; pass a question in a file with --file")
    client = session.client()
    if goes_to_server(click.get_current_context()):
        from cleveragents.cli.run.server_resources import resource_here
        from cleveragents.cli.servers import prefix_of

        resource = resource_here(client, prefix_of(session), resource, directory)
    with IndexBar() as bar:
        answer = client.context.ask(
            asked,
            resource=resource,
            repository=here if resource is None else None,
            at=commit,
            budget=budget,
            deadline=deadline,
            fragments=not only_files,
            on_progress=bar.moved,
        )
    wanted = AnswerOptions(only_files=only_files, everything=everything, limit=limit, explain=explain)
    show_answer(answer, output, wanted)


def question_of(given: str | None, file: str | None, *, command: str = "context") -> str:
    """Return the question from the argument, a file or stdin. Raises `click.UsageError`."""
    if given is not None and file is not None:
        raise click.UsageError("pass the question or --file, not both")
    if given is None and file is None:
        raise click.UsageError(
            f'missing question: pass agents {command} "QUESTION", --file FILE, or `-` for stdin'
        )
    if given is not None and given != "-":
        return given
    # Bytes that are not text, as in a pasted log, are dropped, not refused.
    return _read(None if file in (None, "-") else file).decode("utf-8", "replace")


def _read(file: str | None) -> bytes:
    """Return the first part of the file, or of stdin."""
    if file is None:
        source = getattr(sys.stdin, "buffer", None)
        return sys.stdin.read().encode() if source is None else source.read(_LARGEST_QUESTION)
    try:
        with Path(file).open("rb") as stream:
            return stream.read(_LARGEST_QUESTION)
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {str(error.strerror).lower()}") from None
