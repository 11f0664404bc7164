"""Which server a command goes through, if any, and as whom."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cleveragents.cli.client.server_client import ServerClient
    from cleveragents.cli.session import Session

__all__ = ["connected", "prefix_in", "prefix_of", "said_server", "selected_url", "token_for"]

_DIRECTLY = ("", "local")


def said_server(ctx: click.Context) -> str | None:
    """What `--server` said; None if it was left out."""
    said = ctx.find_root().params.get("server")
    return said if isinstance(said, str) else None


def selected_url(ctx: click.Context, session: Session) -> str | None:
    """The server that commands go through; None: they work directly. `ConfigurationError`."""
    said = said_server(ctx)
    if said is None:
        said = session.configuration().settings.server.address
    if said in _DIRECTLY:
        return None
    from cleveragents.cli.client.logins import normal_url

    return normal_url(said)


def connected(session: Session) -> ServerClient:
    """A client of the selected server, closed when the command ends."""
    from cleveragents.cli.client.server_client import ServerClient

    ctx = click.get_current_context()
    url = selected_url(ctx, session)
    if url is None:
        raise ConfigurationError("--server", "names no server")
    return ctx.with_resource(ServerClient(url, token_for(session, url), prefix=prefix_of(session)))


def prefix_of(session: Session) -> str:
    """How a command begins that goes the same way as this one."""
    return prefix_in(click.get_current_context())


def prefix_in(ctx: click.Context) -> str:
    """The same, once the command has ended, too."""
    said = said_server(ctx)
    if said is None or said in _DIRECTLY:
        return "agents"
    from cleveragents.cli.client.logins import normal_url

    try:
        return f"agents --server {normal_url(said)}"
    except ConfigurationError:  # which is what will be reported
        return "agents"


def token_for(session: Session, url: str) -> str | None:
    """The one that was kept; for the server of this very state, the one that it was started with."""
    from cleveragents.cli.client.logins import kept_token, logins_file

    kept = kept_token(logins_file(os.environ), url)
    return kept or _own_token(Path(session.configuration().settings.state.directory), url)


def _own_token(state_directory: Path, url: str) -> str | None:
    from cleveragents.server.first_token import token_file
    from cleveragents.server.server_file import running_server

    running = running_server(state_directory)
    if running is None or running.url.rstrip("/") != url:  # guard: it is for this server alone
        return None
    try:
        return token_file(state_directory).read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
