"""`agents mcp`: the servers that offer tools by the Model Context Protocol."""

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

__all__ = ["mcp", "told_working"]


@click.group()
@click.pass_context
def mcp(context: click.Context) -> None:
    """Add, list, test and remove MCP servers, or be one.

    Yours are in ~/.config/cleveragents/mcp.json; a repository's .mcp.json counts once it is trusted.

    \b
    Example:
      agents mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
      agents mcp test files
      agents mcp serve
    """
    name = context.invoked_subcommand
    if name != "serve" and prefix_in(context) != "agents":  # guard: not done here instead
        raise click.UsageError(f"agents mcp {name} works on this machine only; leave --server out", context)


mcp.add_command(serve)


@mcp.command("add")
@click.argument("name")
@click.argument("words", metavar="[-- COMMAND [ARGS]...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", help="Where the server is, instead of a command that starts it.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable that it gets.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Sent with every request.")
@click.option("--cwd", "directory", metavar="DIR", help="Where it starts; by default, in the sandbox.")
@click.option("--not-isolated", is_flag=True, help="Run it with your home and network, outside the sandbox.")
@click.option("--replace", is_flag=True, help="Put it in the place of one with the same name.")
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
    """Add a server of your own, under NAME.

    Keep secrets out of the file: write '${NAME}' and the variable is filled in when the server is started.

    \b
    Example:
      agents mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
      agents mcp add tracker --url https://tracker.example/mcp --header 'Authorization=Bearer ${TRACKER}'
    """
    from cleveragents.tools.mcp.configuration import add_server

    if bool(words) == bool(url):
        raise click.UsageError("say either --url URL, or -- and the command that starts it")
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
    progress(f"{name} is in {file}; `agents mcp test {name}` tries it")


@mcp.command("list")
@format_option
@pass_session
def list_servers(session: Session, output: Output) -> None:
    """List your servers, and those of the repository here.

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
    # A file that is wrong may be where they are.
    none = "" if found.notes else "there are no servers; `agents mcp add` adds one"
    output.table(rows, columns, empty=none)
    for note in found.notes:
        progress(note)


@mcp.command("remove")
@click.argument("name")
@pass_session
def remove(session: Session, name: str) -> None:
    """Remove a server of yours.

    \b
    Example:
      agents mcp remove files
    """
    from cleveragents.tools.mcp.configuration import remove_server

    file = _user_file()
    remove_server(file, name)
    progress(f"{name} is no longer in {file}")


@mcp.command("test")
@click.argument("name")
@format_option
@pass_session
def test(session: Session, name: str, output: Output) -> None:
    """Start a server, list its tools, and stop it again.

    It runs as a plan's would, in an empty directory in the place of a sandbox. Nothing of it is left.

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
    output.table(rows, columns, empty="it offers no tools")
    progress(told_working(found.servers[name], len(rows)))


def told_working(server: McpServer, tools: int) -> str:
    """That it works; only what was started for the test is stopped after it."""
    stopped = "" if server.url else "; it was stopped again"
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
            raise click.UsageError(f"{option} takes NAME=VALUE")  # what was given may be a secret
        pairs[name] = value
    return pairs


def _no_server(name: str, found: McpConfiguration) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(found.servers), n=1)
    known = f"there are {', '.join(found.servers)}" if found.servers else "`agents mcp add` adds one"
    return f"there is no server {name!r}; " + (f"did you mean {near[0]}?" if near else known)


def _row(server: McpServer, output: Output) -> dict[str, JsonValue]:
    starts = server.url or shlex.join(server.command)
    # Nothing of one behind a URL runs here.
    isolated = server.isolated if not server.url else None if output.machine_readable else "n/a"
    return {
        "name": server.name,
        "from": server.source,
        # A repository's command is shown as it is: a name or a shape would hide code.
        "starts": redact_text(starts) if server.own else redact_known_text(starts),
        "isolated": isolated,
    }


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
