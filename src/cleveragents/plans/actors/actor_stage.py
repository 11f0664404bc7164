"""What the actors of a plan stand on: the plan and its sandbox, their means, and each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cleveragents.core.actions.check import CheckRun
from cleveragents.plans.actors.starting_context import StartingContext
from cleveragents.plans.calls.tool_execution import ToolExecution
from cleveragents.plans.model.plan import Plan
from cleveragents.plans.model.strategy import Casting, Strategy
from cleveragents.sandboxes.ports import Sandbox

if TYPE_CHECKING:
    from cleveragents.actors.ports import ActorHost, Actors
    from cleveragents.jobs.worker.async_worker import AsyncJob

__all__ = ["ActorGround", "OpenHost", "OpenStage", "Stage"]


class OpenHost(Protocol):
    """What a run of an actor may use; `part` names the run within its plan, `reads` forbids changes."""

    def __call__(self, part: str, *, reads: bool) -> ActorHost: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """What actors of a plan find: each other, their means, the repository's own instructions, and what of it
    matters for a question."""

    actors: Actors
    host: OpenHost
    instructions: str
    context: StartingContext
    outcome: Callable[[], tuple[str, str]]
    """The name of the tree that the plan came to so far, and what it changed, as a model reads it."""
    named: Callable[[str], str]
    """What a run is called by now: after a rollback took its calls back, it is run anew, under a new name."""


@dataclass(frozen=True, slots=True)
class ActorGround:
    """What a phase of one plan stands on, while one job runs it."""

    plan: Plan
    strategy: Strategy
    sandbox: Sandbox
    job: AsyncJob
    seconds_left: Callable[[], float]
    run_checks: Callable[[], Sequence[CheckRun]]
    execution: ToolExecution | None = None
    """The plan's own calls; none where it only reads."""

    @property
    def casting(self) -> Casting:
        assert self.strategy.casting is not None  # without actors nobody asks for them
        return self.strategy.casting


class OpenStage(Protocol):
    """Sets the stage for a plan's actors; leaving it ends what they had started."""

    def __call__(self, ground: ActorGround) -> AbstractContextManager[Stage]: ...
