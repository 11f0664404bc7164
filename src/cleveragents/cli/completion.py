"""`agents completion`, and the values that a shell completes: plans, models and actors.

A completer runs whenever a user presses Tab, so it reads only a short list. If the list cannot be read, the
shell completes nothing, without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from cleveragents.core.errors import CleverAgentsError
from cleveragents.core.text.control_characters import escape_controls

if TYPE_CHECKING:
    from cleveragents.api.client import Client

__all__ = [
    "complete_actor",
    "complete_model",
    "complete_plan",
    "completion",
    "completion_file",
    "install_completion",
    "is_installed_in",
    "script_for",
]

_VARIABLE = "_AGENTS_COMPLETE"
"""The environment variable by which a shell asks for completions."""

_SHELLS = ("bash", "zsh", "fish")
_PLANS = 50
_FILES = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/completions/agents.fish"}


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell: bash, zsh or fish.

    Completes commands, options, plans, models, actors and settings.

    \b
    Example:
      echo 'eval "$(agents completion bash)"' >> ~/.bashrc
      echo 'eval "$(agents completion zsh)"' >> ~/.zshrc
      agents completion fish > ~/.config/fish/completions/agents.fish
    """
    click.echo(script_for(shell), nl=False)


def script_for(shell: str) -> str:
    """Return the completion script of the shell."""
    from cleveragents.cli.commands import cli

    known = get_completion_class(shell)
    assert known is not None
    # The method of the base class: bash is not started to ask for its version.
    return ShellComplete.source(known(cli, {}, "agents", _VARIABLE))


def completion_file(shell: str, home: Path) -> Path | None:
    """Return the file of the user that enables the completion of the shell; None for an unknown shell."""
    return None if shell not in _FILES else home / _FILES[shell]


def is_installed_in(file: Path) -> bool:
    """Return whether the file enables completion."""
    try:
        return _VARIABLE in (text := file.read_text(errors="replace")) or "agents completion" in text
    except OSError:
        return False


def install_completion(shell: str, file: Path) -> None:
    """Enable completion: write the file of fish; append a line to the file of another shell. Raises
    `OSError`.
    """
    if shell == "fish":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script_for(shell))
        return
    with file.open("a") as opened:  # one write at the end of the file: a kill leaves the file as it was
        opened.write(f'\neval "$(agents completion {shell})"\n')


def complete_plan(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the latest plans of this repository, with their titles; outside a repository, the latest plans
    of all.
    """
    return _completed(context, incomplete, _plans)


def complete_model(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the models with known prices."""
    return _completed(context, incomplete, _models)


def complete_actor(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the actors of this repository and the built-in actors, with their descriptions."""
    return _completed(context, incomplete, _actors)


_Found = Iterator[tuple[str, str]]


def _completed(
    context: click.Context, incomplete: str, found: Callable[[Client], _Found]
) -> list[CompletionItem]:
    items: list[CompletionItem] = []
    with suppress(CleverAgentsError, OSError), _connected(context) as client:
        items += [
            CompletionItem(value, help=escape_controls(text) or None)
            for value, text in found(client)
            # A plan is also named by the end of its id.
            if value.startswith((incomplete, incomplete.upper())) or value.endswith(incomplete.upper())
        ]
    return items


@contextmanager
def _connected(context: click.Context) -> Iterator[Client]:
    """Return the client for the options typed so far. A request to a server is not retried."""
    from cleveragents.api.client import HttpClient
    from cleveragents.cli.session import Session

    root = context.find_root()
    root.obj = Session(root.params.get("overrides") or ())
    with context:
        client = root.obj.client()
        with client.http.without_patience() if isinstance(client, HttpClient) else nullcontext():
            yield client


def _plans(client: Client) -> _Found:
    from cleveragents.cli.plan.choose import place_here

    listed = client.plans.list(resource=place_here(client), limit=_PLANS).items
    return ((plan.id, f"{plan.status.value}: {plan.title}") for plan in listed)


def _models(client: Client) -> _Found:
    return ((model.model, "") for model in client.models.list(limit=1000).items)


def _actors(client: Client) -> _Found:
    from cleveragents.cli.local_only import goes_to_server

    here = None if goes_to_server(click.get_current_context()) else Path()
    listed = client.actors.list(repository=here, limit=1000).items
    return ((actor.name, actor.description or "") for actor in listed)
