"""The repository of a session on the command line: the current repository, or the one that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleveragents.api.conversations.client import ConversationRequest
from cleveragents.cli.local_only import goes_to_server

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.plans.request import Limits
    from cleveragents.cli.session import Session

__all__ = ["new_request", "repository_of"]


def new_request(
    session: Session,
    client: Client,
    directory: str | None,
    resource: str | None,
    model: str | None,
    limits: Limits,
    profile: str | None = None,
) -> ConversationRequest:
    """Return the request for a session about the named or the current repository."""
    if directory is not None and resource is not None:
        raise click.UsageError("pass --in or --resource, not both")
    if goes_to_server(click.get_current_context()):
        from cleveragents.cli.run.server_resources import resource_here
        from cleveragents.cli.servers import prefix_of

        resource = resource_here(client, prefix_of(session), resource, directory)
    return ConversationRequest(
        repository=directory or ".", resource=resource, model=model, profile=profile, limits=limits
    )


def repository_of(session: Session, client: Client) -> str:
    """Return the name of the current repository in a list of sessions: its resource on a server, or its
    path.
    """
    if goes_to_server(click.get_current_context()):
        from cleveragents.cli.run.server_resources import resource_here
        from cleveragents.cli.servers import prefix_of

        return resource_here(client, prefix_of(session), None, otherwise="name the session")
    from cleveragents.sandboxes.resources import find_resource

    return str(find_resource(Path.cwd())[0])
