"""Where the jobs of a plan are queued, and which lanes they are in.

A plan that was asked for with a `queue` is run by whoever works for that, on whatever machine; so limits that
are meant for all of them are lanes of its jobs. A plan without one belongs to the process that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cleveragents.core.json_value import JsonValue
from cleveragents.jobs.model.job import Lane

__all__ = ["SHARED_QUEUE", "PlanLanes", "home_queue", "project_lane", "queue_of"]

SHARED_QUEUE = "plans"
"""The queue of plans that a server was asked for, and that can run on any machine."""


def home_queue(home: str | None) -> str:
    """The queue of plans on a directory, which only workers with that state directory have. Without one, the
    queue of all."""
    return SHARED_QUEUE if home is None else f"{SHARED_QUEUE}@{home}"


def queue_of(request: Mapping[str, JsonValue]) -> str:
    """The shared queue that a plan was asked for with; "" is none."""
    queue = request.get("queue")
    return queue if isinstance(queue, str) else ""


def project_lane(name: str) -> str:
    """The lane of all jobs of a project."""
    return f"project:{name}"


@dataclass(frozen=True, slots=True)
class PlanLanes:
    """The limits of today: a job keeps those that were in force when it was queued."""

    project_limit: Callable[[str], int | None] = lambda name: None
    provider_limit: int = 64
    default_model: str = ""
    queue_bound: int | None = None

    def of(self, request: Mapping[str, JsonValue], model: JsonValue = None) -> tuple[Lane, ...]:
        """The lanes of a plan's jobs, as the request of its root says. `model` is one that was named since,
        instead of the request's."""
        if not queue_of(request):
            return ()
        return (*self.of_project(request), *self._of_provider(model or request.get("model")))

    def of_project(self, request: Mapping[str, JsonValue]) -> tuple[Lane, ...]:
        """Only the project's, for jobs that ask no model."""
        project = request.get("project")
        if not queue_of(request) or not isinstance(project, str):
            return ()
        limit = self.project_limit(project)
        return () if limit is None else (Lane(project_lane(project), limit),)

    def _of_provider(self, model: JsonValue) -> tuple[Lane, ...]:
        named = model if isinstance(model, str) and model else self.default_model
        provider = named.partition("/")[0]
        return (Lane(f"provider:{provider}", self.provider_limit),) if provider else ()
