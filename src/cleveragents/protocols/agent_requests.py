"""Requests of other agents, for every protocol.

The agent chooses the goal and its limits, but not the profile: the user decides what a plan may do without
approval.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
from pydantic import BaseModel, Field

from cleveragents.api.plans.request import Limits, PlanRequest
from cleveragents.api.views import every
from cleveragents.core.errors import RequestRefused

if TYPE_CHECKING:
    from cleveragents.api.client import Client

__all__ = ["Dollars", "GoalOptions", "Seconds", "Tokens", "log_through_ours", "only_resource", "patch_text"]

# The same limits as over HTTP: an infinite limit could be neither counted nor stored.
Dollars = Annotated[float, Field(gt=0, le=1e6)]
Tokens = Annotated[int, Field(gt=0, le=2**53)]
Seconds = Annotated[float, Field(gt=0, le=30 * 86_400)]

_LONGEST_PATCH = 200_000


class GoalOptions(BaseModel):
    """Options of a goal. `actor` replaces the actors of all phases; `to_branch` is the new branch of a git
    remote for the result.
    """

    resource: str | None = None
    model: str | None = None
    actor: str | None = None
    checks: tuple[str, ...] = ()
    max_usd: Dollars | None = None
    max_tokens: Tokens | None = None
    seconds: Seconds | None = None
    to_branch: str | None = None

    def request(
        self, goal: str, *, profile: str | None = None, repository: Path | None = None
    ) -> PlanRequest:
        """Return the request for a plan. `repository` is the default if no resource is named."""
        return PlanRequest(
            goal=goal,
            resource=self.resource,
            repository=repository or ".",
            model=self.model,
            actor=self.actor,
            checks=self.checks,
            profile=profile,
            limits=Limits(usd=self.max_usd, tokens=self.max_tokens, seconds=self.seconds),
            to_branch=self.to_branch,
        )


def only_resource(client: Client, field: str) -> str:
    """Return the only resource that the user can see. Raises `RequestRefused` for any other number of
    resources; `field` is the missing field in the request.
    """
    known = [one.name for one in every(lambda after: client.resources.list(after=after))]
    if len(known) != 1:
        named = f"choose one of {', '.join(known)}" if known else "no resource is registered yet"
        raise RequestRefused(f"missing {field}: {named}", field)
    return known[0]


def patch_text(client: Client, plan_id: str) -> str:
    """Return the patch of a plan as text, cut to a length that a model can read. Raises the errors of
    `plans.patch`."""
    text = client.plans.patch(plan_id).decode("utf-8", "replace")
    if len(text) <= _LONGEST_PATCH:
        return text
    left = len(text) - _LONGEST_PATCH
    return f"{text[:_LONGEST_PATCH]}\n… {left:,} more characters in the diff of plan {plan_id}"


class _ToOurLog(logging.Handler):
    """Forwards log records, masked: they quote requests, which may contain secrets."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno,
            "protocol.said",
            logger=record.name,
            said=record.getMessage(),
            exc_info=record.exc_info,
        )


def log_through_ours(*names: str) -> None:
    """Send these logs of an SDK to our log from now on. A second call is harmless."""
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers = [_ToOurLog()]
        logger.propagate = False  # guard: requests are never logged unmasked
