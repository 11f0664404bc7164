"""Routes of actions, actors, models and profiles."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field, SecretStr

from cleveragents.api.actions import ActionRow, ActionView
from cleveragents.api.actors import ActorRow, ActorVerdict, ActorView
from cleveragents.api.models import PROMPT, ModelTrial, ModelView, ProfileView
from cleveragents.api.views import Page
from cleveragents.core.errors import Unavailable
from cleveragents.core.errors.facts import facts_of
from cleveragents.core.text.redaction import redact
from cleveragents.server.access import AdminClient, AnyClient, OperatorClient
from cleveragents.server.parameters import After, InResource, Limit, PartOfName, StrictBody
from cleveragents.server.problems import code_of, problem
from cleveragents.server.service import Here

__all__ = ["router"]

router = APIRouter(prefix="/api")

_ACTION = """\
name: team/format
description: Formats the code.
execute:
  steps:
    - tool: command
      with: {argv: [make, format]}
"""


class NewAction(BaseModel):
    """The YAML of an action."""

    yaml: str = Field(min_length=1, max_length=65_536, examples=[_ACTION])
    replace: bool = Field(False, description="replace an action with the same name")


@router.get("/actions", operation_id="listActions", tags=["actions"])
def list_actions(
    client: AnyClient, resource: InResource = None, limit: Limit = 100, after: After = None
) -> Page[ActionRow]:
    """List the built-in actions, the actions of the server's users, and the actions in a repository."""
    return client.actions.list(resource=resource, limit=limit, after=after)


@router.post("/actions", status_code=201, operation_id="createAction", tags=["actions"])
def create_action(action: NewAction, client: AdminClient) -> ActionView:
    """Create an action.

    Every mistake is named with its line; an invalid action is not stored. Nothing runs now: plans run the
    action within the limits of their profile.
    """
    return client.actions.add(action.yaml, replace=action.replace)


@router.get("/actions/{namespace}/{name}", operation_id="getAction", tags=["actions"])
def get_action(
    namespace: PartOfName, name: PartOfName, client: AnyClient, resource: InResource = None
) -> ActionView:
    """Show the arguments and steps of an action."""
    return client.actions.get(f"{namespace}/{name}", resource=resource)


@router.delete("/actions/{namespace}/{name}", status_code=204, operation_id="deleteAction", tags=["actions"])
def delete_action(namespace: PartOfName, name: PartOfName, client: AdminClient) -> None:
    """Delete an action that was created with this API. Plans made from it keep their own copy
    and continue.
    """
    client.actions.remove(f"{namespace}/{name}")


_ACTOR = """\
name: team/triage
type: llm
description: Says what an issue is about.
model: anthropic/claude-sonnet-4-5
prompt: Say in one sentence what this is about.
"""


class ActorText(BaseModel):
    """The YAML of an actor."""

    yaml: str = Field(max_length=65_536, examples=[_ACTOR])


@router.get("/actors", operation_id="listActors", tags=["actors"])
def list_actors(
    client: AnyClient, resource: InResource = None, limit: Limit = 100, after: After = None
) -> Page[ActorRow]:
    """List the built-in actors, the actors of the server's own user, and the actors in a repository."""
    return client.actors.list(resource=resource, limit=limit, after=after)


@router.get("/actors/{namespace}/{name}", operation_id="getActor", tags=["actors"])
def get_actor(
    namespace: PartOfName, name: PartOfName, client: AnyClient, resource: InResource = None
) -> ActorView:
    """Show an actor: nodes, state, limits, graph and file."""
    return client.actors.get(f"{namespace}/{name}", resource=resource)


@router.post("/actors/validation", operation_id="validateActor", tags=["actors"])
def validate_actor(actor: ActorText, client: OperatorClient) -> ActorVerdict:
    """Validate the YAML of an actor, and name every mistake with its line.

    Nothing is stored or run, and files that the YAML names are not read.
    """
    return client.actors.validate(actor.yaml)


OfProvider = Annotated[
    str | None, Query(max_length=64, description="only models of this provider", examples=["anthropic"])
]


OfName = Annotated[
    str | None, Query(max_length=200, description="only this model, listed or not", examples=[None])
]


class ModelTrialBody(StrictBody):
    """A trial prompt for a model."""

    model: str | None = Field(
        default=None, max_length=200, pattern=r"\S", description="null: `models.default`", examples=[None]
    )
    prompt: str = Field(default=PROMPT, min_length=1, max_length=10_000, pattern=r"\S", examples=[PROMPT])


@router.get("/models", operation_id="listModels", tags=["models"])
def list_models(
    client: AnyClient,
    provider: OfProvider = None,
    name: OfName = None,
    limit: Limit = 100,
    after: After = None,
) -> Page[ModelView]:
    """List the models with known prices and limits. Other models work as well.

    With `name`, show one model, which need not be listed. Scripts are files on the server's machine: only
    operators, who can name one for a plan, see them.
    """
    if name is not None:
        return Page(items=(client.models.get(name),))
    return client.models.list(provider=provider, limit=limit, after=after)


@router.post("/models/trial", operation_id="tryModel", tags=["models"], response_model=ModelTrial)
def try_model(trial: ModelTrialBody, here: Here, client: OperatorClient) -> ModelTrial | Response:
    """Send a short prompt to a model, with the keys of the server. The answer has at most 256 tokens.

    A failure of the model or its provider is reported (409) and not retried. At most four trials run in
    parallel (429).
    """
    with here.trials.one("model trials"):
        try:
            return client.models.test(trial.model, prompt=trial.prompt)
        except Unavailable as error:  # guard: an automatic retry would cost money again
            return problem(409, code_of(error), str(error), facts=redact(facts_of(error)))


class ModelChoiceBody(StrictBody):
    """The new default model, the address of its server, and its key. The answer never contains the key."""

    model: str = Field(min_length=1, max_length=200, pattern=r"\S", examples=["anthropic/claude-sonnet-4-5"])
    base_url: str | None = Field(
        default=None,
        max_length=2_000,
        description="the server of a model named `openai/…`; empty: OpenAI itself; null: as before",
        examples=["http://127.0.0.1:11434/v1"],
    )
    key: SecretStr = Field(
        default=SecretStr(""), max_length=1_000, description="stored in the keyring of the server's user"
    )


@router.post("/models/default", operation_id="chooseModel", tags=["models"])
def choose_model(choice: ModelChoiceBody, client: AdminClient) -> ModelView:
    """Make a model the default of the server, from the next plan or turn on, and store its key.

    The choice is written to the settings file of the server's user. Workers in other processes use it after a
    restart. Only server admins may choose.
    """
    key = choice.key.get_secret_value()
    return client.models.choose(choice.model, base_url=choice.base_url, key=key)


@router.get("/profiles", operation_id="listProfiles", tags=["models"])
def list_profiles(client: AnyClient, limit: Limit = 100, after: After = None) -> Page[ProfileView]:
    """List the profiles of plans."""
    return client.models.profiles(limit=limit, after=after)
