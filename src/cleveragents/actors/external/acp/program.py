"""An agent's command as the guard is to run it, with what its node says that it gets of the user's."""

from __future__ import annotations

from cleveragents.actors.agent_ports import AgentRequest
from cleveragents.core.errors import InvalidToolCall, OutsideSandbox, ToolRefused
from cleveragents.processes.guard_protocol import GuardProgram
from cleveragents.processes.lent import shown_by
from cleveragents.processes.ports import Command, CommandHome
from cleveragents.processes.private_directory import make_directory, remove_directory
from cleveragents.processes.program_lookup import check_command
from cleveragents.processes.talking_program import (
    ProgramPlace,
    bubblewrap_for,
    talking_program,
)

__all__ = ["agent_program"]


def agent_program(request: AgentRequest, place: ProgramPlace) -> GuardProgram:
    """What the guard runs. `ToolRefused`: there is no such program, or it cannot be isolated though it must.

    The directory that it names as `private` is the caller's to remove.
    """
    bubblewrap = bubblewrap_for(place, request.name)
    command = Command(
        argv=request.argv,
        root=place.root,
        directory=place.directory,
        network=request.network,
        readable=(*place.readable, *shown_by(request.argv)),
        passed=request.environment,
        home=CommandHome(request.home),
        processes=request.processes,
        network_denied=place.network_denied,
    )
    private = make_directory()
    try:
        check_command(command)
        return talking_program(command, place, private, bubblewrap)
    except (ToolRefused, InvalidToolCall, OutsideSandbox) as error:
        remove_directory(str(private))
        reason = error.reason if isinstance(error, ToolRefused) else str(error)
        remedy = f"; {request.install}" if request.install else ""
        raise ToolRefused(request.name, f"{reason}{remedy}") from error
