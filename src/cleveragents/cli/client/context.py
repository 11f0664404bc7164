"""`agents context`, asked of a server: what of a resource of its matters for a question."""

from __future__ import annotations

from pathlib import Path

import click

from cleveragents.cli import context as local
from cleveragents.cli.client.accounts import Account
from cleveragents.cli.client.places import resource_here
from cleveragents.cli.client.selection import connected
from cleveragents.cli.client.twins import client_command
from cleveragents.cli.output import Output, Styled, counted, printable, progress, write
from cleveragents.cli.session import Session
from cleveragents.core.text.control_characters import escape_controls

__all__ = ["context"]

_FILES_LISTED = 20
_HELP = """Find what of a resource matters for a question, within a budget of tokens.

QUESTION is a sentence, an error message, a whole issue; `-` reads it from stdin. The server looks, with no
model, at the resource that is the repository you are in, or that you name, as it is there. The first
question about it builds an index on the server; later ones only look at what changed.

\b
Example:
  agents context "Where is the session cookie signed?"
  agents context --resource shop --files "Where is the session cookie signed?"
"""
_resource = click.Option(
    ["--resource"], metavar="NAME", help="Look there; else in the one that is the repository you are in."
)


def _context(
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
    resource: str | None,
    output: Output,
) -> None:
    asked = local.question_of(" ".join(words) if words else None, file)
    client = connected(session)
    if directory is not None and resource is not None:
        raise click.UsageError("--in names a repository by its directory, --resource by its name; say one")
    if directory is not None:
        local.refuse_file(Path(directory))
    place = resource_here(client, resource, directory)
    body = {"question": asked, "resource": place, "at": commit}
    answer = client.post("/context", {**body, "budget": budget, "deadline": deadline})
    if output.for_programs:
        shown = {**answer, "files": answer["files"][:limit]}
        output.record({**shown, "fragments": []} if only_files else shown)
    elif only_files:
        for path in answer["files"][: limit or _FILES_LISTED]:
            click.echo(printable(path))
    else:
        _show_text(answer, output)
    if explain and not output.for_programs:
        _explain(answer, output)
    for note in answer["notes"]:
        progress(f"note: {note}")
    if not answer["files"] and not output.for_programs and not answer["notes"]:
        progress("nothing was found; other words may help, names and error messages most")


def _show_text(answer: Account, output: Output) -> None:
    for text in (answer["preamble"], answer["skeleton"], *(one["text"] for one in answer["fragments"])):
        for line in text.split("\n") if text else ():
            shown = escape_controls(line, keep_lines=True)
            write(Styled(shown, bold=output.for_eyes and line.startswith("### ")))
    found = counted(len(answer["fragments"]), "fragment")
    spent = f"{answer['tokens']:,} of {answer['budget']:,} tokens"
    progress(f"{found}, {spent}, {answer['took_ms']} ms")


def _explain(answer: Account, output: Output) -> None:
    output.title("strategies")
    rows = [{**one, "strategy": one["name"], "why": one["error"] or ""} for one in answer["strategies"]]
    output.table(rows, ["strategy", "status", "found", "ms", "why"], empty="no strategy was asked")


context = client_command(
    local.context,
    _context,
    more=(_resource,),
    help_text=_HELP,
)
