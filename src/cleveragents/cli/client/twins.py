"""Commands that ask a server, made from those that work here: the same names and arguments, and the same help
where what it says holds there, too.

What cannot go through a server is refused with a reason, and never done here instead: who asked meant the
server's plans.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import Any

import click
from click.core import ParameterSource

from cleveragents.cli.client.problems import not_there
from cleveragents.cli.session import pass_session
from cleveragents.core.errors import CleverAgentsError, UnknownJob, UnknownPlan

__all__ = ["ClientGroup", "client_command"]

_NAMES: Mapping[str, type[CleverAgentsError]] = {"plan_id": UnknownPlan, "job_id": UnknownJob}
_ID = re.compile(r"[0-9A-Za-z.]+")
_NAME = re.compile(r"[^/]+")
_NOT_SAID = (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


def client_command(
    local: click.Command,
    callback: Callable[..., None],
    *,
    without: Sequence[str] = (),
    refused: Mapping[str, str] | None = None,
    more: Sequence[click.Parameter] = (),
    named: Mapping[str, type[CleverAgentsError]] = _NAMES,
    help_text: str | None = None,
) -> click.Command:
    """A command like `local` which `callback` carries out; that gets the session first, and everything else
    by name. It does not have the parameters named in `without`; whoever says one that is `refused` is told
    why. Those that are `named` are the name of something, whose error says that there is none. Without
    `help_text` it has the help of `local`."""
    reasons = refused or {}
    params = [
        _refusing(param, reasons[str(param.name)]) if param.name in reasons else _naming(param, named)
        for param in local.params
        if param.name not in without
    ]
    return click.Command(
        local.name,
        params=[*params, *more],
        help=help_text or local.help,
        short_help=local.short_help,
        callback=pass_session(callback),
        context_settings=dict(local.context_settings),
    )


def _naming(param: click.Parameter, named: Mapping[str, type[CleverAgentsError]]) -> click.Parameter:
    """The same; what it names is one part of an address, and no way on from there."""
    unknown = named.get(str(param.name))
    if unknown is None or not param.required:
        return param
    written = _ID if param.name in _NAMES else _NAME
    naming = copy.copy(param)

    def look(ctx: click.Context, _: click.Parameter, value: str | None) -> str | None:
        if value is not None and not written.fullmatch(value):  # guard: not the address of something else
            raise not_there(unknown(value))
        return value

    naming.callback = look
    return naming


def _refusing(param: click.Parameter, reason: str) -> click.Parameter:
    """The same, not shown and not passed on."""
    refusing = copy.copy(param)
    refusing.expose_value = False
    refusing.required = False
    if isinstance(refusing, click.Option):
        refusing.hidden = True

    def refuse(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if ctx.get_parameter_source(str(param.name)) not in _NOT_SAID:  # guard: not left out in silence
            raise click.UsageError(f"{param.opts[0]} cannot go through a server: {reason}", ctx)

    refusing.callback = refuse
    return refusing


class ClientGroup(click.Group):
    """The commands of a group that a server can carry out, named as `module:attribute` or there already;
    those that need none (`here`) stay as they are, and those that are `refused` have a reason."""

    def __init__(
        self,
        local: click.Group,
        known: Mapping[str, str | click.Command],
        *,
        here: Collection[str] = (),
        refused: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(local.name, help=local.help)
        self._local = local
        self._known = known
        self._here = here
        self.refused = refused or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        served = {*self._known, *self._here}
        return [name for name in self._local.list_commands(ctx) if name in served]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._here:
            return self._local.get_command(ctx, cmd_name)
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
        reason = self.refused.get(str(args[0]))
        if reason is not None:  # guard: not done here instead
            said = f"agents {self.name} {args[0]} cannot go through a server"
            raise click.UsageError(f"{said}: {reason}", ctx)
        known = [*self.list_commands(ctx), *self.refused]
        if str(args[0]) not in known and not str(args[0]).startswith("-"):
            raise click.exceptions.NoSuchCommand(str(args[0]), possibilities=known, ctx=ctx)
        return super().resolve_command(ctx, args)
