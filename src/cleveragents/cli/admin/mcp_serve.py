"""`agents mcp serve`: CleverAgents as an MCP server, for other agents."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from cleveragents.cli.isolation import allow_unisolated_option, ensure_isolated
from cleveragents.cli.output import counted, progress
from cleveragents.cli.session import Session, pass_session

__all__ = ["serve"]


@click.command("serve")
@click.option(
    "--workers",
    type=click.IntRange(0, 1000),
    help="Plans that this process runs at once; else worker.concurrency. 0 leaves them to other workers.",
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
    pass --allow-unisolated or --workers 0.

    \b
    Example:
      agents mcp serve
      claude mcp add cleveragents -- agents mcp serve
    """
    import os

    from cleveragents.api.handover import Handover
    from cleveragents.app.worker_parts import WorkerParts
    from cleveragents.core import policy
    from cleveragents.protocols.mcp_server import server_for
    from cleveragents.sandboxes.resources import find_resource

    if profile is not None:
        policy.profile(profile)
    root, _ = find_resource(Path.cwd())
    container = session.container(serves=True)
    at_once = container.settings.worker.concurrency if workers is None else workers
    if at_once:
        ensure_isolated(container.settings.sandbox, allowed=allow_unisolated)
    server = server_for(Handover(container, "mcp", root, profile))
    with ExitStack() as stack:
        if at_once:
            parts = WorkerParts(container)
            stack.enter_context(parts.start(name=f"mcp-{os.getpid()}", concurrency=at_once))
        progress(f"speaking MCP on stdin and stdout for {root}; {counted(at_once, 'plan')} at once")
        server.run("stdio")
