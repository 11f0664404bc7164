"""`agents plan search`: find plans by the text of their goals, transcripts and changes."""

from __future__ import annotations

import click

from cleveragents.cli.output import Output, format_option
from cleveragents.cli.session import Session, pass_session

__all__ = ["search_plans"]


@click.command("search")
@click.argument("text")
@click.option("--project", metavar="NAME", help="Only plans of this project.")
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Maximum number of plans.",
)
@format_option
@pass_session
def search_plans(session: Session, text: str, project: str | None, limit: int, output: Output) -> None:
    """Find the plans whose goal, answer, transcript or changes contain TEXT.

    Upper and lower case are the same. The latest 1,000 plans are searched, newest first. Masked texts are
    not found.

    \b
    Example:
      agents plan search "rate limit"
      agents plan search discount --format json
    """
    from cleveragents.api.views import as_json

    found = session.client().plans.search(text, project=project, limit=limit)
    nothing = f"no plan contains {text.strip()!r}"
    if output.machine_readable:
        output.table([as_json(one) for one in found], ["plan", "matches"], empty=nothing)
        return
    rows = [
        {"id": one.plan.id, "status": one.plan.status.value, "place": match.place, "text": match.text}
        for one in found
        for match in one.matches[:1]
    ]
    output.table(rows, ["id", "status", "place", "text"], empty=nothing, cut=["text"])
