"""Commands that ask a server, made from those that work here: the same names, arguments and help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

import click

from cleveragents.interfaces.cli.session import pass_session

__all__ = ["ClientGroup", "client_command"]


def client_command(
    local: click.Command,
    callback: Callable[..., None],
    *,
    without: Sequence[str] = (),
    more: Sequence[click.Parameter] = (),
) -> click.Command:
    """A command like `local`, less the parameters named in `without`, which `callback` carries out; that gets
    the session first, and everything else by name."""
    params = [param for param in local.params if param.name not in without]
    return click.Command(
        local.name,
        params=[*params, *more],
        help=local.help,
        short_help=local.short_help,
        callback=pass_session(callback),
        context_settings=dict(local.context_settings),
    )


class ClientGroup(click.Group):
    """The commands of a group that a server can carry out, named as `module:attribute` or there already."""

    def __init__(self, local: click.Group, known: Mapping[str, str | click.Command]) -> None:
        super().__init__(local.name, help=local.help)
        self._local = local
        self._known = known

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in self._local.list_commands(ctx) if name in self._known]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._known.get(cmd_name)
        if not isinstance(found, str):
            return found
        module, _, attribute = found.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = str(args[0])
        if name not in self._known and name in self._local.list_commands(ctx):  # guard: not done here instead
            said = f"agents {self.name} {name} works on this machine only"
            raise click.UsageError(f"{said}; leave --server out, or say --server local", ctx)
        return super().resolve_command(ctx, args)
