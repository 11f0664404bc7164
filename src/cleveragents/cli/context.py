"""`agents context`: what of a repository matters for a question."""

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
@click.option(
    "--in", "directory", metavar="DIRECTORY", help="Look there, in the whole repository that it lies in."
)
@click.option("--resource", metavar="NAME", help="Look in this resource.")
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
    resource: str | None,
    commit: str | None,
    budget: int | None,
    deadline: float | None,
    only_files: bool,
    limit: int | None,
    explain: bool,
    output: Output,
) -> None:
    """Find what of a repository matters for a question, within a budget of tokens.

    QUESTION is a sentence, an error message, a whole issue; `-` reads it from stdin. It looks in the
    repository that you are in; in any directory, in git or not, with no model. The first question in a
    repository builds an index of it, beside your other state; later ones only look at what changed. A server
    looks in its resource that is the repository you are in, or that you name, and has an index of its own.

    \b
    Example:
      agents context "Where is the session cookie signed?"
      agents context --files --explain "TypeError: can't compare offset-naive and offset-aware datetimes"
      agents context --file issue.md --budget 16000 --format json
    """
    from cleveragents.cli.render.context_view import show_answer
    from cleveragents.cli.render.index_progress import IndexBar

    asked = question_of(" ".join(words) if words else None, file)
    if directory is not None and resource is not None:
        raise click.UsageError("--in names a repository by its directory, --resource by its name; say one")
    here = Path.cwd() if directory is None else Path(directory)
    if here.is_file():
        raise click.UsageError(f"{here} is no directory; a question in a file is asked with --file")
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
    show_answer(answer, output, only_files=only_files, limit=limit, explain=explain)


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
