"""Models and profiles: who can think, and what plans may do unasked."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from cleveragents.access.model.user import Role
from cleveragents.api.model_account import model_account, no_provider
from cleveragents.api.model_trial import PROMPT, tried
from cleveragents.core.errors import RequestRefused, Unavailable
from cleveragents.core.policy import PROFILES, Capability, Policy, Verdict
from cleveragents.core.text.redaction import redact_text
from cleveragents.models.catalogue import ModelCatalogue
from cleveragents.server.access import AnyUser, Operator
from cleveragents.server.accounts import account_as
from cleveragents.server.listing import After, Limit, Listing, piece_of
from cleveragents.server.plan_models import Strict
from cleveragents.server.problems import Refused, code_of
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["models"])

OfProvider = Annotated[
    str | None, Query(max_length=64, description="only models of this one", examples=["anthropic"])
]


OfName = Annotated[
    str | None, Query(max_length=200, description="only this one, listed or not", examples=[None])
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


class Trial(Strict):
    """What is said to a model, to see whether it answers."""

    model: str | None = Field(
        default=None, max_length=200, pattern=r"\S", description="null: `models.default`", examples=[None]
    )
    prompt: str = Field(default=PROMPT, min_length=1, max_length=10_000, pattern=r"\S", examples=[PROMPT])


class TrialAccount(BaseModel):
    """What a model answered, and what that took."""

    model: str = Field(examples=["anthropic/claude-sonnet-4-5"])
    answer: str = Field(description="masked", examples=["Hello to you, dear friend!"])
    cut_off: bool = Field(examples=[False])
    input_tokens: int | None = Field(examples=[14])
    cached_tokens: int | None = Field(examples=[0])
    output_tokens: int | None = Field(examples=[9])
    cost: str = Field(description="in dollars, or unknown", examples=["$0.0002"])
    first_word_seconds: float | None = Field(examples=[0.412])
    seconds: float = Field(examples=[0.734])


class ProfileAccount(BaseModel):
    """A profile: what a plan may do, has to ask for, or may not."""

    name: str = Field(examples=["supervised"])
    default: bool = Field(description="whether plans have it that name none", examples=[True])
    never_asks: bool = Field(description="what it would ask for is denied", examples=[False])
    verdicts: dict[Capability, Verdict] = Field(examples=[{"read": "allow", "apply": "ask"}])


@router.get("/models", operation_id="listModels")
def list_models(
    here: Here,
    access: AnyUser,
    provider: OfProvider = None,
    name: OfName = None,
    limit: Limit = 100,
    after: After = None,
) -> Listing[ModelAccount]:
    """Lists the models whose prices and limits are known; others work as well. Of one that is named, what is
    known is told, listed or not. A script is a file of the server's machine: only operators, who can name one
    for a plan, are told of it."""
    catalogue = here.container.models
    if name is not None:
        if catalogue.is_file(name):
            access.ensure_anywhere(Role.OPERATOR)  # guard: no viewer looks for files
        one = account_as(ModelAccount, model_account(catalogue.facts(name), catalogue))
        return Listing[ModelAccount](items=[one], next=None)
    if provider is not None and provider not in catalogue.providers():
        raise RequestRefused(no_provider(provider, catalogue.providers()), "provider")
    known = [
        account_as(ModelAccount, model_account(facts, catalogue))
        for facts in catalogue.known()
        if provider is None or facts.name.partition("/")[0] == provider
    ]
    return piece_of(sorted(known, key=_name), _name, limit, after)


@router.post("/models/trial", operation_id="tryModel")
def try_model(trial: Trial, here: Here, access: Operator) -> TrialAccount:
    """Asks a model something small, with the keys of the server; the answer has at most 256 tokens. What is
    wrong with a model or its provider is said, and not tried again (409). Four are tried at once (429)."""
    settings = here.container.settings.models
    chosen = trial.model or settings.default
    if not chosen:
        raise RequestRefused("say which model; the server has none in models.default", "model")
    try:
        with here.trials.one("models that are tried"):
            # One of its own: those that plans share belong to another loop.
            told = tried(ModelCatalogue(settings, secrets=here.container.secrets).get(chosen), trial.prompt)
    except Unavailable as error:  # guard: who asks again of themselves pays again
        raise Refused(409, code_of(error), str(error)) from None
    return account_as(TrialAccount, told | {"answer": redact_text(str(told["answer"]))})


@router.get("/profiles", operation_id="listProfiles")
def list_profiles(
    here: Here, access: AnyUser, limit: Limit = 100, after: After = None
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
