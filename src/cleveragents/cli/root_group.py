"""The root command group. With `--server`, it refuses commands that work on this machine only."""

from __future__ import annotations

import click

from cleveragents.cli.lazy import LazyGroup

__all__ = ["RootGroup"]

_SERVED = (
    *("acp", "action", "actor", "ask", "completion", "context", "cost", "events", "jobs", "login", "logout"),
    "mcp",
    "model",
    *("plan", "project", "resource", "run", "session", "trust", "user"),
)
"""Commands that can use a server."""


class RootGroup(LazyGroup):
    """A group that refuses `--server` for commands that cannot use a server."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._lazy and not ctx.resilient_parsing:
            self._ensure_served(ctx, cmd_name)
        return super().get_command(ctx, cmd_name)

    def _ensure_served(self, ctx: click.Context, name: str) -> None:
        """Raise `click.UsageError` for a command that cannot use a server, if `--server` is passed."""
        if name in _SERVED or ctx.params.get("server") is None:
            return
        from cleveragents.cli.servers import selected_url
        from cleveragents.cli.session import Session

        if ctx.obj is None:
            ctx.obj = Session(ctx.params.get("overrides", ()))
        if selected_url(ctx, ctx.obj) is not None:  # guard: not run on this machine instead
            raise click.UsageError(f"agents {name} works on this machine only; omit --server", ctx)
