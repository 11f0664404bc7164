"""`agents model`: list, describe and test language models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.api.models import PROMPT
from cleveragents.cli.completion import complete_model
from cleveragents.cli.local_only import goes_to_server
from cleveragents.cli.output import Output, format_option, progress, write
from cleveragents.cli.render.narrow_terminal import columns_for
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.control_characters import escape_controls

if TYPE_CHECKING:
    from cleveragents.api.models import ModelView

__all__ = ["model"]

_PRICES = ("input", "cached", "output")
_UNITS = "prices in dollars per million tokens"


@click.group()
def model() -> None:
    """List, describe and test language models.

    A model is named provider/model. Keys come from the environment or the keyring.

    \b
    Example:
      agents model list
      agents model test openai/gpt-4o-mini
    """


@model.command("list")
@click.option("--provider", help="Only models of this provider.")
@format_option
@pass_session
def list_models(session: Session, provider: str | None, output: Output) -> None:
    """List the models with known prices and limits; others work as well.

    Prices are in dollars per million tokens.

    \b
    Example:
      agents model list --provider anthropic
    """
    from cleveragents.api.views import every

    models = session.client().models
    pages = every(lambda after: models.list(provider=provider, limit=1000, after=after))
    rows = [_row(known, output) for known in pages]
    columns = columns_for(
        output, ["model", "input", "output", "context_tokens", "key"], ["context_tokens"], 70
    )
    columns = columns_for(output, columns, spare=["input", "output"], width=50)
    output.table(rows, columns, empty=f"no known model of {provider}; others may work")
    if rows and not output.machine_readable:
        as_of = models.prices_as_of()
        progress(_UNITS if as_of is None else f"{_UNITS}, as of {as_of}")


@model.command("show")
@click.argument("name", shell_complete=complete_model)
@format_option
@pass_session
def show_model(session: Session, name: str, output: Output) -> None:
    """Show the prices and limits of a model, and whether its key is set.

    \b
    Example:
      agents model show anthropic/claude-sonnet-4-5
    """
    output.record(_row(session.client().models.get(name), output))
    if not output.machine_readable:
        progress(_UNITS)


@model.command("test")
@click.argument("name", required=False, shell_complete=complete_model)
@click.option("--prompt", default=PROMPT, show_default=True, help="The prompt.")
@format_option
@pass_session
def test_model(session: Session, name: str | None, prompt: str, output: Output) -> None:
    """Send a short prompt to a model, and show the answer, tokens and cost.

    The default NAME is models.default. A scripted model needs no key and no network.

    \b
    Example:
      agents model test
      agents --set models.base_url=http://localhost:8080/v1 model test openai/local
    """
    from cleveragents.api.views import as_json

    here = not goes_to_server(click.get_current_context())
    if here and not (name or session.configuration().settings.models.default):
        raise click.UsageError(
            "no default model; pass NAME, or run `agents config set models.default PROVIDER/NAME`"
        )
    told = session.client().models.test(name, prompt=prompt, on_text=_show if output.human_readable else None)
    if output.human_readable:
        click.echo()
    output.record(as_json(told))


def _show(piece: str) -> None:
    write(escape_controls(piece, keep_lines=True), end="")


def _row(known: ModelView, output: Output) -> dict[str, JsonValue]:
    """Return the row of a model. For people, an unknown price is shown as a word."""
    from cleveragents.api.views import as_json

    said = as_json(known)
    if output.machine_readable:
        return said
    if known.cache_write is None:  # as other input
        del said["cache_write"]
    return {name: "unknown" if name in _PRICES and value is None else value for name, value in said.items()}
