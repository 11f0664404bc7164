"""About this server: what it is, and what holds where a request says nothing."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cleveragents import __version__
from cleveragents.api.workers import unisolated_workers
from cleveragents.server.access import AnyUser
from cleveragents.server.accounts import account_as
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["about"])


class About(BaseModel):
    """What this server is."""

    name: str = Field(examples=["CleverAgents"])
    version: str = Field(examples=["1.0.0"])
    engine: Literal["embedded", "temporal"] = Field(description="who hands out jobs", examples=["embedded"])
    database: Literal["sqlite", "postgresql"] = Field(examples=["sqlite"])
    default_model: str | None = Field(
        description="of plans that name none", examples=["anthropic/claude-sonnet-4-5"]
    )
    default_profile: str = Field(description="of plans that name none", examples=["supervised"])
    unisolated_workers: list[str] = Field(
        description="workers that run commands of plans without isolation now", examples=[[]]
    )
    context_budget: int = Field(description="tokens of an answer, unless asked otherwise", examples=[8000])
    context_deadline: float = Field(description="seconds for one, unless asked otherwise", examples=[10.0])


@router.get("/about", operation_id="getAbout")
def get_about(here: Here, access: AnyUser) -> About:
    """Tells the server's version, and what holds where a request says nothing."""
    container = here.container
    settings = container.settings
    return account_as(
        About,
        {
            "name": "CleverAgents",
            "version": __version__,
            "engine": settings.jobs.engine,
            "database": container.database.dialect,
            "default_model": settings.models.default or None,
            "default_profile": settings.plan.profile,
            "unisolated_workers": unisolated_workers(container),
            "context_budget": settings.context.budget_tokens,
            "context_deadline": settings.context.deadline_seconds,
        },
    )
