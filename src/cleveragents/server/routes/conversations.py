"""Routes of conversations: sessions with an assistant about a repository."""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from cleveragents.api.conversations.client import (
    ConversationRequest,
    ConversationView,
    FileLinesView,
    TurnOutputView,
    TurnView,
)
from cleveragents.api.plans.request import Limits
from cleveragents.api.views import Page
from cleveragents.conversations.model import LONGEST_QUESTION
from cleveragents.core.errors import RequestRefused
from cleveragents.models.model.attachment import MOST_ATTACHMENTS, Attachment
from cleveragents.server.access import (
    AnyClient,
    ConversationId,
    ConversationOperator,
    ConversationViewer,
    OperatorClient,
)
from cleveragents.server.middleware.body import MOST_ATTACHED_CHARACTERS
from cleveragents.server.middleware.idempotency import Claimed
from cleveragents.server.parameters import NAME, After, InResource, Limit, StrictBody
from cleveragents.server.routes.plans import NewLimits

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["conversations"])

InProject = Annotated[str | None, Query(max_length=64, description="only this project", examples=["shop"])]


class NewConversationBody(StrictBody):
    """A conversation to start."""

    resource: str = Field(
        max_length=64,
        pattern=NAME,
        description="a registered resource; GET /resources lists them",
        examples=["shop-main"],
    )
    model: str | None = Field(default=None, max_length=200, pattern=r"\S", examples=["openai/gpt-4.1"])
    profile: str | None = Field(
        default=None,
        max_length=64,
        description="the profile of its plans: actions allowed without approval",
        examples=["review"],
    )
    limits: NewLimits | None = Field(
        default=None, description="limits of its model calls and of each of its plans; `seconds` of one turn"
    )


class AttachmentBody(StrictBody):
    """A file of a question."""

    name: str = Field(max_length=255, examples=["login.png"])
    content: str = Field(
        max_length=MOST_ATTACHED_CHARACTERS,
        description="the file as base64: a PNG, JPEG, GIF or WebP image, or a PDF",
        examples=["iVBORw0KGgo="],
    )

    def attachment(self) -> Attachment:
        """Return the checked file. Raises `RequestRefused`."""
        try:
            content = b64decode(self.content, validate=True)
        except ValueError:
            raise RequestRefused("the content of an attachment is not base64", "attachments") from None
        return Attachment.of(self.name, content)


class TurnBody(StrictBody):
    """A question."""

    text: str = Field(
        min_length=1,
        max_length=LONGEST_QUESTION,
        pattern=r"\S",
        examples=["Where is the session cookie signed?"],
    )
    read_only: bool = Field(default=False, description="the turn cannot start plans", examples=[False])
    attachments: list[AttachmentBody] = Field(
        default_factory=list,
        max_length=MOST_ATTACHMENTS,
        description="images and PDFs for the model of the conversation, at most 10 MB together",
        examples=[[]],
    )


class TitleBody(StrictBody):
    """A new title."""

    title: str = Field(min_length=1, max_length=1000, pattern=r"\S", examples=["The session cookie"])


class ForkBody(StrictBody):
    """The last turn to copy."""

    turn: int | None = Field(default=None, ge=1, le=10**9, description="null: all ended turns", examples=[2])


class TurnOutputPage(BaseModel):
    """A part of the output of a conversation."""

    items: tuple[TurnOutputView, ...]
    begins: int = Field(description="`after` for the beginning of the last turn", examples=[0])


@router.get("/conversations", operation_id="listConversations")
def list_conversations(
    client: AnyClient,
    project: InProject = None,
    resource: InResource = None,
    limit: Limit = 100,
    after: After = None,
) -> Page[ConversationView]:
    """List the conversations of your projects, newest first."""
    return client.conversations.list(project=project, resource=resource, limit=limit, after=after)


@router.post("/conversations", status_code=201, operation_id="createConversation")
def create_conversation(
    body: NewConversationBody, client: OperatorClient, claim: Claimed
) -> ConversationView:
    """Start a conversation about a resource."""
    limits = Limits() if body.limits is None else body.limits.limits()
    request = ConversationRequest(
        resource=body.resource, model=body.model, profile=body.profile, limits=limits
    )
    return client.conversations.create(request, claim=claim)


@router.get("/conversations/{conversation_id}", operation_id="getConversation")
def get_conversation(conversation_id: ConversationId, client: ConversationViewer) -> ConversationView:
    """Return a conversation without its turns."""
    return client.conversations.get(conversation_id)


@router.patch("/conversations/{conversation_id}", operation_id="renameConversation")
def rename_conversation(
    conversation_id: ConversationId, body: TitleBody, client: ConversationOperator
) -> ConversationView:
    """Change the title of a conversation."""
    return client.conversations.rename(conversation_id, body.title)


@router.post("/conversations/{conversation_id}/budget", operation_id="raiseConversationBudget")
def raise_conversation_budget(
    conversation_id: ConversationId, body: NewLimits, client: ConversationOperator
) -> ConversationView:
    """Raise the limits of a conversation, also while a turn runs.

    A limit is a total; one below the current limit is refused. Omitted limits stay. A turn that failed
    because of the budget can then be resumed.
    """
    return client.conversations.raise_budget(conversation_id, body.limits())


@router.delete("/conversations/{conversation_id}", status_code=204, operation_id="deleteConversation")
def delete_conversation(
    conversation_id: ConversationId,
    client: ConversationOperator,
    only_unused: Annotated[bool, Query(description="refuse a conversation that has turns")] = False,
) -> None:
    """Delete a conversation with its turns. Its plans stay. Refused while a turn runs."""
    client.conversations.delete(conversation_id, only_unused=only_unused)


@router.get("/conversations/{conversation_id}/turns", operation_id="listTurns")
def list_turns(
    conversation_id: ConversationId, client: ConversationViewer, limit: Limit = 100, after: After = None
) -> Page[TurnView]:
    """List the turns of a conversation, in order."""
    return client.conversations.turns(conversation_id, limit=limit, after=after)


@router.post("/conversations/{conversation_id}/turns", status_code=201, operation_id="sendTurn")
def send_turn(
    conversation_id: ConversationId, body: TurnBody, client: ConversationOperator, claim: Claimed
) -> TurnView:
    """Send a question and start its turn.

    The answer arrives in the output of the conversation; after its end, the turn contains it. One turn runs
    at a time: another turn is refused with `conversation-busy`. Plans that the turn starts belong to you, and
    wait for a person before they are applied. A text `/plan GOAL` starts a plan with this goal, without a
    model call. The model gets the attachments in this turn only; a file that it does not take is refused.
    """
    attachments = [one.attachment() for one in body.attachments]
    return client.conversations.send(
        conversation_id, body.text, read_only=body.read_only, attachments=attachments, claim=claim
    )


@router.get("/conversations/{conversation_id}/output", operation_id="getTurnOutput")
def get_turn_output(
    conversation_id: ConversationId,
    client: ConversationViewer,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="only output with a higher number")] = 0,
    limit: Limit = 500,
) -> TurnOutputPage:
    """Return the output of a conversation as it arrives. Old output is dropped; answers stay in the turns."""
    conversations = client.conversations
    items = conversations.output(conversation_id, after=after, limit=limit)
    return TurnOutputPage(items=items, begins=conversations.begins(conversation_id))


@router.get("/conversations/{conversation_id}/file", operation_id="getConversationFile")
def get_conversation_file(
    conversation_id: ConversationId,
    client: ConversationOperator,
    path: Annotated[str, Query(min_length=1, max_length=4096, examples=["src/session.py"])],
    line: Annotated[int, Query(ge=1, le=10**9, examples=[12])] = 1,
) -> FileLinesView:
    """Return the lines around a line of a file of the repository, for example a line that an answer refers
    to.

    Files that git ignores are refused.
    """
    return client.conversations.file(conversation_id, path, line=line)


@router.post("/conversations/{conversation_id}/resume", operation_id="resumeTurn")
def resume_turn(conversation_id: ConversationId, client: ConversationOperator) -> TurnView:
    """Continue your last turn, which was interrupted, stopped or failed. Finished calls are not repeated.

    Refused if another person sent the turn.
    """
    return client.conversations.resume(conversation_id)


@router.post("/conversations/{conversation_id}/stop", operation_id="stopTurn")
def stop_turn(conversation_id: ConversationId, client: ConversationOperator) -> ConversationView:
    """Stop the running turn, so that it can be resumed. The response does not wait for its end."""
    return client.conversations.stop(conversation_id)


@router.post("/conversations/{conversation_id}/fork", status_code=201, operation_id="forkConversation")
def fork_conversation(
    conversation_id: ConversationId, body: ForkBody, client: ConversationOperator, claim: Claimed
) -> ConversationView:
    """Start a conversation with a copy of the turns. The plans stay with the source."""
    return client.conversations.fork(conversation_id, turn=body.turn, claim=claim)


@router.post("/conversations/{conversation_id}/compact", operation_id="compactConversation")
def compact_conversation(conversation_id: ConversationId, client: ConversationOperator) -> ConversationView:
    """Summarise all but the recent turns for later prompts, with one model call. The turns stay readable."""
    return client.conversations.compact(conversation_id)
