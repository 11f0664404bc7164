"""`agents mcp serve`: CleverAgents as an MCP server for other agents, on stdin and stdout or over HTTP."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleveragents.cli.isolation import allow_unisolated_option, ensure_isolated
from cleveragents.cli.local_only import LocalOption, goes_to_server
from cleveragents.cli.output import progress
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.protocols.mcp_server import McpServerOptions

__all__ = ["serve"]

_DRAIN_SECONDS = 60.0


@click.command("serve")
@click.option(
    "--workers",
    type=click.IntRange(0, 1000),
    help="Concurrency of this process. Default: worker.concurrency. 0 leaves plans to other workers.",
    cls=LocalOption,
    reason="the workers of the server run its plans",
)
@click.option("--profile", metavar="NAME", help="Profile of the plans. Default: plan.profile.")
@click.option("--http", is_flag=True, help="Serve over streamable HTTP, for users with a token.")
@click.option("--host", metavar="ADDRESS", help="With --http: address to listen on. Default: server.host.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="With --http: port. Default: server.port. 0 selects a free port.",
)
@allow_unisolated_option
@click.pass_context
@pass_session
def serve(
    session: Session,
    ctx: click.Context,
    workers: int | None,
    profile: str | None,
    http: bool,
    host: str | None,
    port: int | None,
    allow_unisolated: bool,
) -> None:
    """Offer plans and context to other agents, on stdin and stdout or over HTTP.

    Tools: create_plan, plan_status, plan_diff, apply_plan, cancel_plan, context. Plans run on the current
    repository or on registered resources. The profile and your settings decide what a plan may do without
    approval; other results wait for you. When the other agent disconnects, running jobs return to the queue
    for the next worker.

    Like every worker, it needs isolation, unless you pass --allow-unisolated or --workers 0. With --server,
    plans run on the registered resources of the server, by its workers.

    --http starts the same server as `agents serve`, which offers MCP at /mcp. By default it listens on this
    machine only. Each request needs the token of a user (`agents user token`), and has that user's rights.

    \b
    Example:
      agents mcp serve
      agents mcp serve --http --port 8421
      claude mcp add cleveragents -- agents mcp serve
      claude mcp add cleveragents -- agents --server https://agents.example mcp serve
    """
    from cleveragents.core import policy
    from cleveragents.protocols.mcp_server import McpServerOptions

    if profile is not None:
        policy.profile(profile)
    if http:
        _serve_http(ctx, profile, host=host, port=port, workers=workers, allow_unisolated=allow_unisolated)
        return
    if host is not None or port is not None:
        raise click.UsageError("--host and --port need --http")
    if goes_to_server(ctx):
        if allow_unisolated:
            raise click.UsageError(
                "--allow-unisolated cannot be used with a server: the server isolates its plans"
            )
        progress("serving MCP on stdin and stdout for the resources of the server")
        _speak(session.client(), McpServerOptions(profile=profile))
        return
    _serve_here(session, workers, profile, allow_unisolated)


def _serve_http(ctx: click.Context, profile: str | None, **options: Any) -> None:
    from cleveragents.cli.admin.serve import serve as serve_all
    from cleveragents.config.entry_points import install_command
    from cleveragents.core.errors import ConfigurationError
    from cleveragents.protocols.mcp_routes import PATH, is_installed

    if goes_to_server(ctx):
        raise click.UsageError(f"--http cannot be used with a server: the server itself offers MCP at {PATH}")
    if profile is not None:
        raise click.UsageError("--profile cannot be used with --http; set plan.profile")
    if not is_installed():
        raise ConfigurationError("mcp", f"MCP needs its SDK: {install_command('mcp')}")
    progress(f"MCP is at {PATH} of the server; clients send a token in the header Authorization")
    ctx.invoke(serve_all, **options, token_file=None, drain_seconds=_DRAIN_SECONDS)


def _serve_here(session: Session, workers: int | None, profile: str | None, allow_unisolated: bool) -> None:
    import os

    from cleveragents.api.access import owner_of
    from cleveragents.api.client import LocalClient
    from cleveragents.app.worker_parts import WorkerParts
    from cleveragents.protocols.mcp_server import McpServerOptions
    from cleveragents.sandboxes.resources import find_resource

    root, _ = find_resource(Path.cwd())
    container = session.container(serves=True)
    at_once = container.settings.worker.concurrency if workers is None else workers
    if at_once:
        ensure_isolated(container.settings.sandbox, allowed=allow_unisolated)
    with ExitStack() as stack:
        if at_once:
            parts = WorkerParts(container)
            stack.enter_context(parts.start(name=f"mcp-{os.getpid()}", concurrency=at_once))
        progress(f"serving MCP on stdin and stdout for {root}; max parallel: {at_once}")
        client = LocalClient(container, owner_of(container, "mcp"))
        _speak(client, McpServerOptions(root, profile, container.settings.context.deadline_seconds))


def _speak(client: Client, workplace: McpServerOptions) -> None:
    from cleveragents.protocols.mcp_server import server_for

    server_for(lambda: client, workplace).run("stdio")
