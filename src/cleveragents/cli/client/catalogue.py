"""`agents model`, asked of a server."""

from __future__ import annotations

import click

from cleveragents.api.model_account import model_row
from cleveragents.cli.admin import model as local_model
from cleveragents.cli.client.selection import connected
from cleveragents.cli.client.twins import ClientGroup, client_command
from cleveragents.cli.output import Output, printable, progress
from cleveragents.cli.render.narrow import columns_for
from cleveragents.cli.session import Session

__all__ = ["model"]


def _show_model(session: Session, name: str, output: Output) -> None:
    (found,) = connected(session).get("/models", name=name)["items"]
    output.record(found if output.for_programs else model_row(found))
    if not output.for_programs:
        progress("prices in dollars per million tokens")


def _list_models(session: Session, provider: str | None, output: Output) -> None:
    rows = list(connected(session).pages("/models", provider=provider))
    rows = rows if output.for_programs else [model_row(row) for row in rows]
    columns = columns_for(
        output, ["model", "input", "output", "context_tokens", "key"], ["context_tokens"], 70
    )
    columns = columns_for(output, columns, spare=["input", "output"], width=50)
    output.table(rows, columns, empty=f"no model of {provider} is listed; it may work all the same")
    if rows and not output.for_programs:
        progress("prices in dollars per million tokens")


def _test_model(session: Session, name: str | None, prompt: str, output: Output) -> None:
    told = connected(session).post("/models/trial", {"model": name, "prompt": prompt})
    if output.for_eyes:
        click.echo("\n".join(printable(line) for line in str(told["answer"]).split("\n")))
    output.record(told)


model = ClientGroup(
    local_model.model,
    {
        "list": client_command(local_model.list_models, _list_models),
        "show": client_command(local_model.show_model, _show_model),
        "test": client_command(local_model.test_model, _test_model),
    },
)
