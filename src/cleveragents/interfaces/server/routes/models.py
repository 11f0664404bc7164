"""Models and profiles: who can think, and what plans may do unasked."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from cleveragents.domain.policy import PROFILES, Capability, Policy, Verdict
from cleveragents.interfaces.desk.model_account import model_account
from cleveragents.interfaces.server.access import Viewer
from cleveragents.interfaces.server.accounts import account_as
from cleveragents.interfaces.server.listing import After, Limit, Listing, piece_of
from cleveragents.interfaces.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["models"])

OfProvider = Annotated[
    str | None, Query(max_length=64, description="only models of this one", examples=["anthropic"])
]


class ModelAccount(BaseModel):
    """A language model. Prices are in dollars per million tokens."""

    model: str = Field(examples=["anthropic/claude-sonnet-4-5"])
    input: float | None = Field(examples=[3.0])
    cached: float | None = Field(examples=[0.3])
    output: float | None = Field(examples=[15.0])
    context_tokens: int | None = Field(examples=[200_000])
    output_tokens: int | None = Field(examples=[64_000])
    key: Literal["there", "missing", "not needed"] = Field(
        description="whether the server has a key for it", examples=["there"]
    )


class ProfileAccount(BaseModel):
    """A profile: what a plan may do, has to ask for, or may not."""

    name: str = Field(examples=["supervised"])
    default: bool = Field(description="whether plans have it that name none", examples=[True])
    never_asks: bool = Field(description="what it would ask for is denied", examples=[False])
    verdicts: dict[Capability, Verdict] = Field(examples=[{"read": "allow", "apply": "ask"}])


@router.get("/models", operation_id="listModels")
def list_models(
    here: Here, who: Viewer, provider: OfProvider = None, limit: Limit = 100, after: After = None
) -> Listing[ModelAccount]:
    """Lists the models whose prices and limits are known; others work as well."""
    catalogue = here.container.models
    known = [
        account_as(ModelAccount, model_account(facts, catalogue))
        for facts in catalogue.known()
        if provider is None or facts.name.partition("/")[0] == provider
    ]
    return piece_of(sorted(known, key=_name), _name, limit, after)


@router.get("/profiles", operation_id="listProfiles")
def list_profiles(
    here: Here, who: Viewer, limit: Limit = 100, after: After = None
) -> Listing[ProfileAccount]:
    """Lists the profiles that a plan can run under."""
    default = here.container.settings.plan.profile
    known = [_profile(policy, policy.name == default) for policy in PROFILES.values()]
    return piece_of(sorted(known, key=lambda one: one.name), lambda one: one.name, limit, after)


def _profile(policy: Policy, default: bool) -> ProfileAccount:
    verdicts = {capability: policy.verdict(capability) for capability in Capability}
    return ProfileAccount(name=policy.name, default=default, never_asks=policy.never_asks, verdicts=verdicts)


def _name(model: ModelAccount) -> str:
    return model.model
