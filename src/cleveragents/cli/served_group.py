"""The root of all commands, where a server is selected: then those go through it that can."""

from __future__ import annotations

from importlib import import_module

import click

from cleveragents.cli.lazy import LazyGroup

__all__ = ["ServedGroup"]

_ANYWHERE = ("login", "logout")
"""They name the server themselves."""


class ServedGroup(LazyGroup):
    """A group whose commands have twins that ask a server, for when `--server` or a setting names one."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._twin_of(ctx, cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def _twin_of(self, ctx: click.Context, name: str) -> str | None:
        """Where the command is that asks the server; None: the one that works here is meant.
        `click.UsageError` for one that cannot ask a server, and was told to."""
        if name not in self._lazy or name in _ANYWHERE or ctx.resilient_parsing or "server" not in ctx.params:
            return None
        from cleveragents.cli.client.commands import COMMANDS, EITHER_WAY

        if name in EITHER_WAY:
            return None
        said = ctx.params["server"]
        if said is None and name not in COMMANDS:
            return None
        if not _is_selected(ctx, by_setting=said is None):
            return None
        if name not in COMMANDS:  # guard: what was meant for a server is not done here
            raise click.UsageError(f"agents {name} works on this machine only; leave --server out", ctx)
        return COMMANDS[name]


def _is_selected(ctx: click.Context, *, by_setting: bool) -> bool:
    from cleveragents.cli.client.selection import selected_url
    from cleveragents.cli.session import Session
    from cleveragents.core.errors import ConfigurationError

    if ctx.obj is None:
        ctx.obj = Session(ctx.params.get("overrides", ()))
    try:
        return selected_url(ctx, ctx.obj) is not None
    except ConfigurationError:
        if by_setting:
            return False  # the command says itself what is wrong, after its help was asked for or not
        raise
