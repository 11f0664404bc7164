"""`agents mcp serve`: CleverAgents as an MCP server, for other agents."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.isolation import allow_unisolated_option, ensure_isolated
from cleveragents.cli.local_only import LocalOption, goes_to_server
from cleveragents.cli.output import progress
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.protocols.mcp_server import McpServerOptions

__all__ = ["serve"]


@click.command("serve")
@click.option(
    "--workers",
    type=click.IntRange(0, 1000),
    help="Concurrency of this process. Default: worker.concurrency. 0 leaves plans to other workers.",
    cls=LocalOption,
    reason="the workers of the server run its plans",
)
@click.option("--profile", metavar="NAME", help="Profile of the plans. Default: plan.profile.")
@allow_unisolated_option
@pass_session
def serve(session: Session, workers: int | None, profile: str | None, allow_unisolated: bool) -> None:
    """Offer plans and context to other agents, on stdin and stdout.

    Tools: create_plan, plan_status, plan_diff, apply_plan, cancel_plan, context. Plans run on the current
    repository or on registered resources. The profile and your settings decide what a plan may do without
    approval; other results wait for you. When the other agent disconnects, running jobs return to the queue
    for the next worker.

    Like every worker, it needs isolation, unless you pass --allow-unisolated or --workers 0. With --server,
    plans run on the registered resources of the server, by its workers.

    \b
    Example:
      agents mcp serve
      claude mcp add cleveragents -- agents mcp serve
      claude mcp add cleveragents -- agents --server https://agents.example mcp serve
    """
    from cleveragents.core import policy
    from cleveragents.protocols.mcp_server import McpServerOptions

    if profile is not None:
        policy.profile(profile)
    if goes_to_server(click.get_current_context()):
        if allow_unisolated:
            raise click.UsageError(
                "--allow-unisolated cannot be used with a server: the server isolates its plans"
            )
        progress("serving MCP on stdin and stdout for the resources of the server")
        _speak(session.client(), McpServerOptions(profile=profile))
        return
    _serve_here(session, workers, profile, allow_unisolated)


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

    server_for(client, workplace).run("stdio")
