"""`agents login` and `agents logout`: tokens for servers."""

from __future__ import annotations

import os
import sys

import click

from cleveragents.cli.output import Output, format_option, progress

__all__ = ["login", "logout"]

_LONGEST_TOKEN = 512
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@click.command()
@click.argument("url")
@click.argument("source", metavar="[-]", required=False)
@format_option
def login(url: str, source: str | None, output: Output) -> None:
    """Log in to a server with a token.

    Create a token with `agents user token` on the server. The command prompts for it without echo; - reads it
    from stdin. If the server accepts the token, it is stored in servers.toml beside your settings, readable
    only by you.

    \b
    Example:
      agents login https://agents.example
      agents login http://127.0.0.1:8420 - < token-file
    """
    from cleveragents.cli.servers import CommandTransport, keep_token, logins_file, normal_url
    from cleveragents.core.errors import ConfigurationError, NotAuthenticated, ServerFailed

    if source not in (None, "-"):  # the message does not repeat the token
        raise click.UsageError(
            "a token on the command line is visible to other users; "
            "omit it to be prompted, or pass - to read it from stdin"
        )
    address = normal_url(url, said_by="URL")
    _warn_of_plain_text(address)
    token = _token(source)
    try:
        with CommandTransport(address, token, tell=progress) as server:
            session = server.get("/session")
    except NotAuthenticated:
        remedy = "create one on the server with `agents user token NAME`"
        raise NotAuthenticated(remedy) from None
    except ServerFailed as failed:
        if failed.status != 404:
            raise
        raise ConfigurationError("URL", f"no CleverAgents server answers at {address}") from None
    keep_token(logins_file(os.environ), address, token)
    progress(f"use the server with --server: `agents --server {address} plan list`;")
    progress(f"make it the default with `agents config set server.address {address}`")
    user = session["user"]
    known = {"user": user["name"], "role": user["role"], "version": session["version"]}
    output.record({"server": address, **known})


@click.command()
@click.argument("url")
def logout(url: str) -> None:
    """Remove the token of a server.

    The token stays valid on the server; revoke it with `agents user token NAME --revoke ID`.

    \b
    Example:
      agents logout https://agents.example
    """
    from cleveragents.cli.servers import forget_token, logins_file, normal_url

    address = normal_url(url, said_by="URL")
    if forget_token(logins_file(os.environ), address):
        progress(f"removed the token for {address}")
    else:
        progress(f"no token for {address}; nothing changed")


def _token(source: str | None) -> str:
    if source is None and sys.stdin.isatty():
        said = str(click.prompt("Token", hide_input=True, err=True))
    elif source is None:
        raise click.UsageError("no terminal to ask for the token; pass - to read it from stdin")
    else:
        said = sys.stdin.read(_LONGEST_TOKEN + 2)
    token = said.strip()
    if not token or len(token) > _LONGEST_TOKEN or not all("!" <= letter <= "~" for letter in token):
        raise click.UsageError("this is not a token; paste the line that `agents user token` prints")
    return token


def _warn_of_plain_text(address: str) -> None:
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    if parts.scheme == "http" and parts.hostname not in _LOCAL_HOSTS:
        progress("warning: http:// does not encrypt the token; use https://")
