"""`agents mcp`: servers of the Model Context Protocol."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.admin.mcp_serve import serve
from cleveragents.cli.output import Output, counted, format_option, progress
from cleveragents.cli.render.narrow_terminal import columns_for
from cleveragents.cli.servers import prefix_in
from cleveragents.cli.session import Session, pass_session
from cleveragents.core.json_value import JsonValue
from cleveragents.core.text.redaction import redact_known_text, redact_text

if TYPE_CHECKING:
    from cleveragents.tools.mcp.configuration import McpConfiguration
    from cleveragents.tools.mcp.server_entry import McpServer

__all__ = ["mcp", "success_message"]


@click.group()
@click.pass_context
def mcp(context: click.Context) -> None:
    """Add, list, test and remove MCP servers, or run as one.

    Your servers are in ~/.config/cleveragents/mcp.json. Servers in .mcp.json of a repository need trust.

    \b
    Example:
      agents mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
      agents mcp test files
      agents mcp serve
    """
    name = context.invoked_subcommand
    if (
        name != "serve" and prefix_in(context) != "agents"
    ):  # guard: a command for a server does not act on this machine
        raise click.UsageError(f"agents mcp {name} works on this machine only; omit --server", context)


mcp.add_command(serve)


@mcp.command("add")
@click.argument("name")
@click.argument("words", metavar="[-- COMMAND [ARGS]...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", help="URL of the server, instead of a command.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for the server.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every request.")
@click.option("--cwd", "directory", metavar="DIR", help="Working directory. Default: the sandbox.")
@click.option(
    "--not-isolated", is_flag=True, help="Run the server outside the sandbox, with your home and network."
)
@click.option("--replace", is_flag=True, help="Replace a server with the same name.")
@pass_session
def add(
    session: Session,
    name: str,
    words: tuple[str, ...],
    url: str | None,
    variables: tuple[str, ...],
    headers: tuple[str, ...],
    directory: str | None,
    not_isolated: bool,
    replace: bool,
) -> None:
    """Add a server of your own as NAME.

    Keep secrets out of the file: '${NAME}' is replaced by the variable when the server starts.

    \b
    Example:
      agents mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
      agents mcp add tracker --url https://tracker.example/mcp --header 'Authorization=Bearer ${TRACKER}'
    """
    from cleveragents.tools.mcp.configuration import add_server

    if bool(words) == bool(url):
        raise click.UsageError("pass either --url URL, or -- and the command of the server")
    entry: dict[str, object] = {"url": url} if url else {"command": words[0], "args": [*words[1:]]}
    if variables:
        entry["env"] = _pairs(variables, "--env")
    if headers:
        entry["headers"] = _pairs(headers, "--header")
    if directory:
        entry["cwd"] = directory
    if not_isolated:
        entry["isolated"] = False
    file = _user_file()
    add_server(file, name, entry, replace=replace)
    progress(f"added {name} to {file}; try it with `agents mcp test {name}`")


@mcp.command("list")
@format_option
@pass_session
def list_servers(session: Session, output: Output) -> None:
    """List your servers and those of the current repository.

    \b
    Example:
      agents mcp list --format json
    """
    found = _configuration(session)
    rows = [_row(server, output) for server in found.servers.values()]
    rows += [
        {"name": name, "from": path, "starts": "not trusted", "isolated": True}
        for name, path in found.untrusted.items()
    ]
    columns = columns_for(output, ["name", "from", "starts", "isolated"], spare=["from", "isolated"])
    # The servers may be in an invalid file.
    none = "" if found.notes else "no servers; add one with `agents mcp add`"
    output.table(rows, columns, empty=none)
    for note in found.notes:
        progress(note)


@mcp.command("remove")
@click.argument("name")
@pass_session
def remove(session: Session, name: str) -> None:
    """Remove one of your servers.

    \b
    Example:
      agents mcp remove files
    """
    from cleveragents.tools.mcp.configuration import remove_server

    file = _user_file()
    remove_server(file, name)
    progress(f"removed {name} from {file}")


@mcp.command("test")
@click.argument("name")
@format_option
@pass_session
def test(session: Session, name: str, output: Output) -> None:
    """Start a server, list its tools and stop it.

    It runs as in a plan, with an empty directory as its sandbox, which is removed afterwards.

    \b
    Example:
      agents mcp test files
    """
    from cleveragents.cli.admin.tool_sandbox import isolated_mcp_tools

    found = _configuration(session)
    if name not in found.servers and name not in found.untrusted:
        for note in found.notes:
            progress(note)
        raise click.UsageError(_no_server(name, found))
    with isolated_mcp_tools(session, found, name) as tools:
        names = tools.select(f"mcp__{name}__*")
        specs = [tools.get(known).spec for known in names]
    rows: list[dict[str, JsonValue]] = [
        {"name": spec.name, "needs": spec.capability.value, "description": _first_line(spec.description)}
        for spec in specs
    ]
    columns = columns_for(output, ["name", "needs", "description"], spare=["needs"])
    output.table(rows, columns, empty="the server offers no tools")
    progress(success_message(found.servers[name], len(rows)))


def success_message(server: McpServer, tools: int) -> str:
    """Return the message for a working server. For a local server, the message adds that it was stopped."""
    stopped = "" if server.url else "; stopped"
    return f"{server.name} works and offers {counted(tools, 'tool')}{stopped}"


def _configuration(session: Session) -> McpConfiguration:
    from cleveragents.sandboxes.resources import find_resource
    from cleveragents.tools.mcp.configuration import load_mcp

    resource, _ = find_resource(Path.cwd())
    return load_mcp(_user_file(), resource, session.container().plan_parts.trust)


def _user_file() -> Path:
    from cleveragents.tools.mcp.configuration import user_mcp_file

    return user_mcp_file(os.environ)


def _pairs(words: tuple[str, ...], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} takes NAME=VALUE")  # the value may be a secret
        pairs[name] = value
    return pairs


def _no_server(name: str, found: McpConfiguration) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(found.servers), n=1)
    known = f"known servers: {', '.join(found.servers)}" if found.servers else "add one with `agents mcp add`"
    return f"no server {name!r}; " + (f"did you mean {near[0]}?" if near else known)


def _row(server: McpServer, output: Output) -> dict[str, JsonValue]:
    starts = server.url or shlex.join(server.command)
    # A server behind a URL runs elsewhere.
    isolated = server.isolated if not server.url else None if output.machine_readable else "n/a"
    return {
        "name": server.name,
        "from": server.source,
        # Unmasked: masking a command of a repository could hide code.
        "starts": redact_text(starts) if server.own else redact_known_text(starts),
        "isolated": isolated,
    }


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
