"""What the routes of one server share. Routes say `here: Here` and get it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from cleveragents.app.container import Container
from cleveragents.server.at_most import AtMost
from cleveragents.server.stopping import Stopping

if TYPE_CHECKING:
    from cleveragents.app.plan_parts import PlanParts

__all__ = ["Here", "Service"]

_TRIALS = 4
_VERIFICATIONS = 2


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a server's process. Any thread may use it; who made it closes the container.

    `stopping` is for streams, on the server's loop: what never ends by itself ends when it begins. `trials`
    bounds how many models are tried at once: each keeps a thread until its provider has answered.
    `verifications` does so for the log, which is read as a whole each time.
    """

    container: Container
    stopping: Stopping = field(default_factory=Stopping)
    trials: AtMost = field(default_factory=lambda: AtMost(_TRIALS))
    verifications: AtMost = field(default_factory=lambda: AtMost(_VERIFICATIONS))

    @property
    def parts(self) -> PlanParts:
        return self.container.plan_parts


def _service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(_service_of)]
