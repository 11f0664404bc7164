"""Commands and options for this machine only, or for servers only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

__all__ = [
    "LocalCommand",
    "LocalOption",
    "ServerOption",
    "goes_to_server",
    "repository_here",
    "resource_option",
]

_NOT_SAID = (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)

resource_option = click.option(
    "--resource",
    metavar="NAME",
    help="Also use actions and actors of the repository of this resource. Default: the current repository.",
)


def goes_to_server(context: click.Context) -> bool:
    """Return whether the command goes to a server, by `--server` or by the settings. Raises
    `ConfigurationError`.
    """
    from cleveragents.cli.servers import selected_url
    from cleveragents.cli.session import Session

    return selected_url(context, context.ensure_object(Session)) is not None


def repository_here(resource: str | None) -> Path | None:
    """Return the current directory; None if the command names a resource or goes to a server."""
    if resource is not None or goes_to_server(click.get_current_context()):
        return None
    return Path()


class LocalCommand(click.Command):
    """A command for this machine only. If a server is selected, the command is refused instead of acting on
    this machine.
    """

    def __init__(self, *args: Any, reason: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.reason = reason

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and goes_to_server(ctx):
            raise click.UsageError(f"{ctx.command_path} cannot use a server: {self.reason}", ctx.parent)
        return super().parse_args(ctx, args)


class LocalOption(click.Option):
    """An option for this machine only. With a server, the option is refused, not ignored."""

    def __init__(self, *args: Any, reason: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.reason = reason

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        handled = super().handle_parse_result(ctx, opts, args)
        said = ctx.get_parameter_source(str(self.name)) not in _NOT_SAID
        if said and not ctx.resilient_parsing and goes_to_server(ctx):
            raise click.UsageError(f"{self.opts[0]} cannot be used with a server: {self.reason}", ctx)
        return handled


class ServerOption(click.Option):
    """An option for servers only. Without a server, the option is refused, not ignored."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        handled = super().handle_parse_result(ctx, opts, args)
        said = ctx.get_parameter_source(str(self.name)) not in _NOT_SAID
        if said and not ctx.resilient_parsing and not goes_to_server(ctx):
            raise click.UsageError(f"{self.opts[0]} needs a server; pass --server URL", ctx)
        return handled
