"""Models and profiles: who can think, and what plans may do unasked."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from cleveragents.api.models import PROMPT, ModelTrial, ModelView, ProfileView
from cleveragents.api.views import Page
from cleveragents.core.errors import Unavailable
from cleveragents.core.errors.facts import facts_of
from cleveragents.core.text.redaction import redact
from cleveragents.server.access import AnyClient, OperatorClient
from cleveragents.server.listing import After, Limit
from cleveragents.server.plan_models import Strict
from cleveragents.server.problems import code_of, problem
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(tags=["models"])

OfProvider = Annotated[
    str | None, Query(max_length=64, description="only models of this one", examples=["anthropic"])
]


OfName = Annotated[
    str | None, Query(max_length=200, description="only this one, listed or not", examples=[None])
]


class Trial(Strict):
    """What is said to a model, to see whether it answers."""

    model: str | None = Field(
        default=None, max_length=200, pattern=r"\S", description="null: `models.default`", examples=[None]
    )
    prompt: str = Field(default=PROMPT, min_length=1, max_length=10_000, pattern=r"\S", examples=[PROMPT])


@router.get("/models", operation_id="listModels")
def list_models(
    client: AnyClient,
    provider: OfProvider = None,
    name: OfName = None,
    limit: Limit = 100,
    after: After = None,
) -> Page[ModelView]:
    """Lists the models whose prices and limits are known; others work as well. Of one that is named, what is
    known is told, listed or not. A script is a file of the server's machine: only operators, who can name one
    for a plan, are told of it."""
    if name is not None:
        return Page(items=(client.models.get(name),))
    return client.models.list(provider=provider, limit=limit, after=after)


@router.post("/models/trial", operation_id="tryModel", response_model=ModelTrial)
def try_model(trial: Trial, here: Here, client: OperatorClient) -> ModelTrial | Response:
    """Asks a model something small, with the keys of the server; the answer has at most 256 tokens. What is
    wrong with a model or its provider is said, and not tried again (409). Four are tried at once (429)."""
    with here.trials.one("models that are tried"):
        try:
            return client.models.test(trial.model, prompt=trial.prompt)
        except Unavailable as error:  # guard: who asks again of themselves pays again
            return problem(409, code_of(error), str(error), facts=redact(facts_of(error)))


@router.get("/profiles", operation_id="listProfiles")
def list_profiles(client: AnyClient, limit: Limit = 100, after: After = None) -> Page[ProfileView]:
    """Lists the profiles that a plan can run under."""
    return client.models.profiles(limit=limit, after=after)
