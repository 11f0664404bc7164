"""`agents login` and `agents logout`: whom a server knows this machine's user by."""

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
    """Log in to a server, with a token.

    `agents user token` makes one, on the server. It is asked for, and not shown while you type; with - it
    is read from stdin. The server is asked whether it knows the token, and then that is kept in servers.toml
    beside your settings, which only you can read.

    \b
    Example:
      agents login https://agents.example
      agents login http://127.0.0.1:8420 - < token-file
    """
    from cleveragents.cli.servers import CommandTransport, keep_token, logins_file, normal_url
    from cleveragents.core.errors import ConfigurationError, NotAuthenticated, ServerFailed

    if source not in (None, "-"):  # and what it was is not said again
        raise click.UsageError(
            "a token does not belong on the command line, where others can read it; "
            "leave it out and you are asked, or write - and it is read from stdin"
        )
    address = normal_url(url, said_by="URL")
    _warn_of_plain_text(address)
    token = _token(source)
    try:
        with CommandTransport(address, token, tell=progress) as server:
            session = server.get("/session")
    except NotAuthenticated:
        remedy = "this is none; whoever runs it makes one with `agents user token NAME`"
        raise NotAuthenticated(remedy) from None
    except ServerFailed as failed:
        if failed.status != 404:
            raise
        raise ConfigurationError("URL", f"no CleverAgents server answers at {address}") from None
    keep_token(logins_file(os.environ), address, token)
    progress(f"`agents --server {address} plan list` goes through it, as any command does with --server;")
    progress(f"`agents config set server.address {address}` has all of them do so")
    user = session["user"]
    known = {"user": user["name"], "role": user["role"], "version": session["version"]}
    output.record({"server": address, **known})


@click.command()
@click.argument("url")
def logout(url: str) -> None:
    """Forget the token of a server.

    On the server it stays good; `agents user token NAME --revoke ID` ends that.

    \b
    Example:
      agents logout https://agents.example
    """
    from cleveragents.cli.servers import forget_token, logins_file, normal_url

    address = normal_url(url, said_by="URL")
    if forget_token(logins_file(os.environ), address):
        progress(f"the token for {address} is forgotten")
    else:
        progress(f"there was no token for {address}; nothing was changed")


def _token(source: str | None) -> str:
    if source is None and sys.stdin.isatty():
        said = str(click.prompt("Token", hide_input=True, err=True))
    elif source is None:
        raise click.UsageError("nobody is there to ask for the token; with - it is read from stdin")
    else:
        said = sys.stdin.read(_LONGEST_TOKEN + 2)
    token = said.strip()
    if not token or len(token) > _LONGEST_TOKEN or not all("!" <= letter <= "~" for letter in token):
        raise click.UsageError("that is no token; `agents user token` gives one line of visible characters")
    return token


def _warn_of_plain_text(address: str) -> None:
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    if parts.scheme == "http" and parts.hostname not in _LOCAL_HOSTS:
        progress("warning: over http:// everybody on the way can read the token; https:// would hide it")
