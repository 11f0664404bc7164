"""`agents acp`: CleverAgents as an agent in an editor that speaks the Agent Client Protocol."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from cleveragents.cli.isolation import allow_unisolated_option, ensure_isolated
from cleveragents.cli.local_only import LocalOption, goes_to_server
from cleveragents.cli.output import progress
from cleveragents.cli.session import Session, pass_session

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.protocols.acp_agent import AcpOptions

__all__ = ["acp"]


@click.command("acp")
@click.option("--model", metavar="PROVIDER/NAME", help="Model. Default: models.default.")
@click.option("--profile", metavar="NAME", help="Profile of the plans. Default: plan.profile.")
@click.option("--max-usd", type=click.FloatRange(0, 1e6, min_open=True), help="Budget of each session.")
@click.option("--resource", metavar="NAME", help="With a server: resource. Default: the only one.")
@click.option(
    "--workers",
    type=click.IntRange(0, 1000),
    help="Concurrency of this process. Default: worker.concurrency. 0 leaves plans to other workers.",
    cls=LocalOption,
    reason="the workers of the server run its plans",
)
@allow_unisolated_option
@click.pass_context
@pass_session
def acp(
    session: Session,
    ctx: click.Context,
    model: str | None,
    profile: str | None,
    max_usd: float | None,
    resource: str | None,
    workers: int | None,
    allow_unisolated: bool,
) -> None:
    """Work in an editor that speaks the Agent Client Protocol.

    The editor starts this command. A prompt is a message in a session about the repository that the editor
    has open: questions are answered, and requests become plans. The editor shows the calls and diffs of a
    plan, and asks you before a call that needs approval and before the result is applied. Cancel stops the
    answer or pauses the plan.

    Sessions survive a restart of the editor, and `agents session` shows them, too. When the editor
    disconnects, running jobs return to the queue for the next worker.

    \b
    Example:
      agents acp
      agents acp --model openai/gpt-4.1 --max-usd 1
      agents --server https://agents.example acp --resource shop
    """
    from cleveragents.config.entry_points import install_command
    from cleveragents.core import policy
    from cleveragents.core.errors import ConfigurationError

    try:
        from cleveragents.protocols.acp_agent import AcpOptions
    except ModuleNotFoundError:
        raise ConfigurationError("acp", f"ACP needs its SDK: {install_command('acp')}") from None

    if profile is not None:
        policy.profile(profile)
    far = goes_to_server(ctx)
    options = AcpOptions(model=model, profile=profile, usd=max_usd, resource=resource, far=far)
    if far:
        if allow_unisolated:
            raise click.UsageError(
                "--allow-unisolated cannot be used with a server: the server isolates its plans"
            )
        progress("serving ACP on stdin and stdout for the resources of the server")
        _speak(session.client(), options)
        return
    if resource is not None:
        raise click.UsageError("--resource needs a server; plans run on the directory of the editor")
    _serve_here(session, options, workers, allow_unisolated)


def _serve_here(session: Session, options: AcpOptions, workers: int | None, allow_unisolated: bool) -> None:
    import os

    from cleveragents.api.client import LocalClient
    from cleveragents.app.worker_parts import WorkerParts

    container = session.container(serves=True)
    at_once = container.settings.worker.concurrency if workers is None else workers
    if at_once:
        ensure_isolated(container.settings.sandbox, allowed=allow_unisolated)
    with ExitStack() as stack:
        if at_once:
            parts = WorkerParts(container)
            stack.enter_context(parts.start(name=f"acp-{os.getpid()}", concurrency=at_once))
        progress(f"serving ACP on stdin and stdout; max parallel: {at_once}")
        _speak(LocalClient(container), options)


def _speak(client: Client, options: AcpOptions) -> None:
    from cleveragents.protocols.acp_agent import PlanAgent
    from cleveragents.protocols.acp_stdio import serve

    asyncio.run(serve(PlanAgent(client, options)))
