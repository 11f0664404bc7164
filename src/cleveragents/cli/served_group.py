"""The root of all commands, where a server is selected: those that work on this machine only are refused."""

from __future__ import annotations

import click

from cleveragents.cli.lazy import LazyGroup

__all__ = ["ServedGroup"]

_ANYWHERE = ("login", "logout")
"""They name the server themselves."""


class ServedGroup(LazyGroup):
    """A group whose commands refuse `--server` if no server can carry them out."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._lazy and not ctx.resilient_parsing:
            self._ensure_served(ctx, cmd_name)
        return super().get_command(ctx, cmd_name)

    def _ensure_served(self, ctx: click.Context, name: str) -> None:
        """`click.UsageError` for a command that cannot ask a server, and was told to."""
        from cleveragents.cli.client.commands import EITHER_WAY

        if name in (*EITHER_WAY, *_ANYWHERE) or ctx.params.get("server") is None:
            return
        from cleveragents.cli.client.selection import selected_url
        from cleveragents.cli.session import Session

        if ctx.obj is None:
            ctx.obj = Session(ctx.params.get("overrides", ()))
        if selected_url(ctx, ctx.obj) is not None:  # guard: what was meant for a server is not done here
            raise click.UsageError(f"agents {name} works on this machine only; leave --server out", ctx)
