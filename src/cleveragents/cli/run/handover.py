"""Handover of plans to the server of this state directory; `agents run` then watches them.

The command and the server use the same database, so nothing goes over HTTP. A plan is handed over only if the
server lives, which is known from a lock that it holds, and if its worker has reported.
"""

from __future__ import annotations

import getpass
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cleveragents.access.model.project import ResourceKind
from cleveragents.api.plans.details import fields_of
from cleveragents.cli.output import progress
from cleveragents.plans.jobs.names import home_queue

if TYPE_CHECKING:
    from cleveragents.api.plans.create import PlanSpec
    from cleveragents.app.container import Container
    from cleveragents.cli.output import Output
    from cleveragents.cli.run.plans import RunOptions
    from cleveragents.plans.model.plan import Plan

__all__ = ["LocalServer", "hand_over", "local_server_here", "print_handover"]


@dataclass(frozen=True, slots=True)
class LocalServer:
    """The server that runs plans for the current directory, and the name of the directory's resource on that
    server.
    """

    url: str
    resource: str


def local_server_here(container: Container) -> LocalServer | None:
    """Return the server that runs a plan for the current directory, or None if the plan must run in this
    command.
    """
    from cleveragents.core.errors import SandboxRefused
    from cleveragents.sandboxes.resources import find_resource
    from cleveragents.server.server_file import running_server

    running = running_server(container.state_directory)
    if running is None or not _works(container, running.pid):  # guard: a dead server gets no plan
        return None
    with suppress(SandboxRefused):  # creating the plan reports it
        root, inside = find_resource(Path.cwd())
        known = [
            one.name
            for one in container.projects.resources()
            if one.kind is ResourceKind.DIRECTORY and one.location == str(root)
        ]
        # Below the root, only a run here starts commands in the user's directory.
        if len(known) == 1 and not inside:
            return LocalServer(running.url, known[0])
    return None


def hand_over(
    container: Container, local_server: LocalServer, wanted: PlanSpec, handling: RunOptions
) -> Plan:
    """Create the plan and queue it for the server."""
    from cleveragents.api.server_requests import ServerPlanRequest, shared_plan
    from cleveragents.cli.usage import as_usage

    # With a commit message, the result is applied here, where the message is known.
    decided = "review" if handling.only_review or handling.message is not None else None
    apply = "auto" if handling.yes and decided is None else decided
    with as_usage():
        plan = shared_plan(container, ServerPlanRequest(local_server.resource, wanted, apply), by=_user())
    progress(f"the server at {local_server.url} runs the plan; use --here to run it in this terminal")
    return plan


def print_handover(plan: Plan, local_server: LocalServer, output: Output) -> None:
    """Print the plan that the server runs, and how to follow it."""
    progress(f"follow it with `agents plan watch {plan.id}`")
    known = fields_of(plan)
    told = {"plan": plan.id, "goal": known["goal"], "state": known["state"]}
    output.record(
        {**({"id": plan.id} if output.machine_readable else {}), **told, "server": local_server.url}
    )


def _works(container: Container, pid: int) -> bool:
    from cleveragents.storage.home import home_id

    home = home_id(container.state_directory)
    return any(
        (worker.home, worker.pid, worker.state) == (home, pid, "working")
        and home_queue(home) in worker.queue.split(",")
        for worker in container.worker_registry.list()
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown user"  # a user id without a name, as in a bare container
