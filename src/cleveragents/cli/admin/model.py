"""`agents model`: which language models there are, what is known of them, and whether one answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleveragents.api.model_account import model_account, model_row, no_provider
from cleveragents.api.model_trial import PROMPT, tried
from cleveragents.cli.output import Output, format_option, progress, write
from cleveragents.cli.render.narrow import columns_for
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.control_characters import escape_controls

if TYPE_CHECKING:
    from cleveragents.models.catalogue import ModelCatalogue
    from cleveragents.models.ports import ModelFacts

__all__ = ["model"]

_UNITS = "prices in dollars per million tokens"


@click.group()
def model() -> None:
    """List language models, describe one, try one out.

    A model is named provider/model. Keys come from the environment or the keyring.

    \b
    Example:
      agents model list
      agents model test openai/gpt-4o-mini
    """


@model.command("list")
@click.option("--provider", help="Only models of this one.")
@format_option
@pass_session
def list_models(session: Session, provider: str | None, output: Output) -> None:
    """List the models whose prices and limits are known; others work as well.

    Prices are in dollars per million tokens.

    \b
    Example:
      agents model list --provider anthropic
    """
    catalogue = _catalogue(session)
    if provider is not None and provider not in catalogue.providers():
        raise click.UsageError(no_provider(provider, catalogue.providers()))
    rows = [
        _row(facts, output, catalogue)
        for facts in catalogue.known()
        if provider is None or facts.name.partition("/")[0] == provider
    ]
    columns = columns_for(
        output, ["model", "input", "output", "context_tokens", "key"], ["context_tokens"], 70
    )
    columns = columns_for(output, columns, spare=["input", "output"], width=50)
    output.table(rows, columns, empty=f"no model of {provider} is listed; it may work all the same")
    if not output.for_programs:
        progress(f"{_UNITS}, as of {catalogue.prices_as_of}")


@model.command("show")
@click.argument("name")
@format_option
@pass_session
def show_model(session: Session, name: str, output: Output) -> None:
    """Show what is known of a model: prices, limits, whether its key is there.

    \b
    Example:
      agents model show anthropic/claude-sonnet-4-5
    """
    catalogue = _catalogue(session)
    facts = catalogue.facts(name)
    output.record(_row(facts, output, catalogue))
    if not output.for_programs:
        progress(_UNITS)


@model.command("test")
@click.argument("name", required=False)
@click.option("--prompt", default=PROMPT, show_default=True, help="What to say to it.")
@format_option
@pass_session
def test_model(session: Session, name: str | None, prompt: str, output: Output) -> None:
    """Ask a model something small, and show the answer and what it took.

    Without a NAME it is the one of models.default. A scripted model needs no key and no network.

    \b
    Example:
      agents model test
      agents --set models.base_url=http://localhost:8080/v1 model test openai/local
    """
    chosen = name or session.configuration().settings.models.default
    if not chosen:
        raise click.UsageError("say which model, or set one: agents config set models.default PROVIDER/MODEL")
    told = tried(_catalogue(session).get(chosen), prompt, _show if output.for_eyes else _pass)
    if output.for_eyes:
        click.echo()
    output.record(told)


def _show(piece: str) -> None:
    write(escape_controls(piece, keep_lines=True), end="")


def _pass(piece: str) -> None: ...


def _row(facts: ModelFacts, output: Output, catalogue: ModelCatalogue) -> dict[str, JsonValue]:
    known = model_account(facts, catalogue)
    if output.for_programs:
        return known
    return model_row(known)


def _catalogue(session: Session) -> ModelCatalogue:
    from cleveragents.config.logging import configure_logging
    from cleveragents.models.catalogue import ModelCatalogue

    settings = session.configuration().settings
    configure_logging(settings)
    return ModelCatalogue(settings.models, secrets=session.secrets)
