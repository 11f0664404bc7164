"""`agents mcp serve`: CleverAgents as an MCP server, for other agents."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.cli.isolation import allow_unisolated_option, ensure_isolated
from cleveragents.cli.local_only import LocalOption, goes_to_server
from cleveragents.cli.output import counted, progress
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.protocols.mcp_server import McpServerOptions

__all__ = ["serve"]


@click.command("serve")
@click.option(
    "--workers",
    type=click.IntRange(0, 1000),
    help="Plans that this process runs at once; else worker.concurrency. 0 leaves them to other workers.",
    cls=LocalOption,
    reason="the workers of the server run its plans",
)
@click.option("--profile", metavar="NAME", help="What the plans may do by themselves; else plan.profile.")
@allow_unisolated_option
@pass_session
def serve(session: Session, workers: int | None, profile: str | None, allow_unisolated: bool) -> None:
    """Offer plans and context to other agents, on stdin and stdout.

    Tools: create_plan, plan_status, plan_diff, apply_plan, cancel_plan, context. Plans run on the repository
    that you are in, or on registered resources. The other agent says what is wanted; what a plan may do by
    itself is said here and in your settings, and a result that the profile leaves to a person waits for one.
    When the other agent leaves, what still runs is given back, and the next worker goes on with it.

    It takes jobs like any worker, so it does not start where commands of plans cannot be isolated, unless you
    pass --allow-unisolated or --workers 0. Through a server, plans run on its registered resources, and its
    workers run them.

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
            raise click.UsageError("--allow-unisolated cannot go through a server: it isolates its plans")
        progress("speaking MCP on stdin and stdout for the resources of the server")
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
        progress(f"speaking MCP on stdin and stdout for {root}; {counted(at_once, 'plan')} at once")
        client = LocalClient(container, owner_of(container, "mcp"))
        _speak(client, McpServerOptions(root, profile, container.settings.context.deadline_seconds))


def _speak(client: Client, workplace: McpServerOptions) -> None:
    from cleveragents.protocols.mcp_server import server_for

    server_for(client, workplace).run("stdio")
