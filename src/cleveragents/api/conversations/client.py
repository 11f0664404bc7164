"""Conversations about a repository: the interface of both clients, its request and its views."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from cleveragents.api.plans.client import LOOK_SECONDS
from cleveragents.api.plans.request import Limits
from cleveragents.api.plans.views import LimitsView
from cleveragents.api.views import Page, shown, view
from cleveragents.conversations.model import TurnState
from cleveragents.core.errors import Remedy
from cleveragents.models.model.attachment import Attachment, MediaType

__all__ = [
    "Attachment",
    "AttachmentView",
    "ConversationRequest",
    "ConversationView",
    "Conversations",
    "FileLinesView",
    "TurnOutputView",
    "TurnView",
    "followed",
]

EXAMPLE_CONVERSATION = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1E"
_MOMENT = "2026-11-15T12:00:00Z"
_LONGEST_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRequest:
    """A request for a conversation about `repository`, a directory of this machine, or about `resource`, a
    registered repository. A server accepts only a `resource`.

    `limits` apply to all model calls of the conversation and to its plans together. `limits.seconds` is the
    time of one turn. `profile` is the profile of the plans.
    """

    repository: str | os.PathLike[str] = "."
    resource: str | None = None
    model: str | None = None
    profile: str | None = None
    limits: Limits = field(default_factory=Limits)


@view
class ConversationView:
    """A conversation, without its turns."""

    id: str = shown(examples=[EXAMPLE_CONVERSATION])
    title: str = shown(
        "the first words of the first question, unless renamed", examples=["Where is the cookie signed?"]
    )
    state: TurnState | None = shown("the state of the last turn; null without turns", examples=["answered"])
    turns: int = shown("number of turns", examples=[3])
    project: str = shown(examples=["shop"])
    resource: str = shown("the repository or directory", examples=["/srv/shop"])
    resource_name: str | None = shown("the name of the resource", examples=["shop-main"])
    model: str | None = shown("null: the default model", examples=["openai/gpt-4.1"])
    by: str | None = shown("the user who started it; null for the owner of the machine", examples=["ada"])
    created: datetime = shown(examples=[_MOMENT])
    updated: datetime = shown(examples=[_MOMENT])
    forked_from: str | None = shown("the conversation it is a copy of", examples=[None])
    compacted: int = shown("the turns up to this one are summarised in prompts", examples=[0])
    plans: tuple[str, ...] = shown("the plans that it started", examples=[["01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A"]])
    model_calls: int = shown(examples=[4])
    tokens: int = shown(examples=[34_567])
    usd: float | None = shown("null if a price is unknown", examples=[0.0123])
    limits: LimitsView = shown("limits of its model calls; `seconds` of one turn")
    profile: str | None = shown("of its plans; null: the default profile", default=None, examples=["review"])
    calls_tools: bool = shown(
        "the model turns requests into plans; if not, `/plan GOAL` starts one", default=True, examples=[True]
    )


@view
class AttachmentView:
    """A file of a question, without its content."""

    name: str = shown(examples=["login.png"])
    media_type: MediaType = shown("from the content of the file", examples=["image/png"])
    bytes: int = shown("size of the file", examples=[48_213])


@view
class TurnView:
    """A question and its answer."""

    conversation_id: str = shown(examples=[EXAMPLE_CONVERSATION])
    number: int = shown("counts from 1", examples=[1])
    question: str = shown(examples=["Where is the session cookie signed?"])
    answer: str = shown(
        "Markdown; of a turn that is not answered, what the model said so far",
        examples=["In `src/session.py:12`."],
    )
    state: TurnState = shown(examples=["answered"])
    error: str | None = shown("why the turn failed", examples=[None])
    by: str | None = shown("the user who sent it; null for the owner of the machine", examples=["ada"])
    read_only: bool = shown("the turn could not start plans", examples=[False])
    plans: tuple[str, ...] = shown("the plans that the turn started or corrected", examples=[[]])
    output_after: int = shown("`after` for the output of this turn", examples=[0])
    created: datetime = shown(examples=[_MOMENT])
    ended: datetime | None = shown(examples=[_MOMENT])
    attachments: tuple[AttachmentView, ...] = shown("the files of the question", default=(), examples=[[]])
    remedies: tuple[Remedy, ...] = shown("how to fix the error", default=(), examples=[[]])


@view
class TurnOutputView:
    """A piece of the output of a conversation."""

    conversation_id: str = shown(examples=[EXAMPLE_CONVERSATION])
    number: int = shown("counts from 1 for each conversation", examples=[12])
    kind: str = shown(
        "model (what the assistant says), progress (lines for people, such as a tool call), "
        "node (JSON: which `actor` is at which `node`; its `event`, if any, is `thinking`, `tool`, "
        "`tool_done`, or `plan` with the id of a `plan` that the turn started or corrected)",
        examples=["model"],
    )
    text: str = shown(examples=["The cookie is signed in"])
    time: datetime = shown(examples=[_MOMENT])


@view
class FileLinesView:
    """Lines of a file of a conversation's repository, as the file is now."""

    conversation_id: str = shown(examples=[EXAMPLE_CONVERSATION])
    path: str = shown(examples=["src/session.py"])
    first: int = shown("the number of the first line here", examples=[1])
    lines: tuple[str, ...] = shown("masked, and cut if they are long", examples=[["import hmac", ""]])
    total: int = shown("number of lines of the file", examples=[80])


class Conversations(Protocol):
    """The conversations that the acting user can see. A conversation is named by its id, or by an unambiguous
    part of it.

    Every method may raise `UnknownConversation` and `NotAllowed`. A conversation has one turn at a time:
    methods that change it raise `ConversationBusy` while another turn runs.
    """

    def create(self, request: ConversationRequest) -> ConversationView:
        """Start a conversation without turns.

        Raises `RequestRefused`, `UnknownResource`, `UnknownModel`; `ConfigurationError` without a model, and
        for an unknown profile.
        """

    def list(
        self,
        *,
        project: str | None = None,
        resource: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[ConversationView]:
        """Return one page of conversations, newest first. `resource` is the name of a resource; on this
        machine, also the path of a repository.
        """

    def get(self, conversation_id: str) -> ConversationView:
        """Return a conversation without its turns."""

    def turns(self, conversation_id: str, *, limit: int = 100, after: str | None = None) -> Page[TurnView]:
        """Return one page of the turns, in order."""

    def send(
        self,
        conversation_id: str,
        text: str,
        *,
        read_only: bool = False,
        attachments: Sequence[Attachment] = (),
    ) -> TurnView:
        """Store a question and start its turn. Returns at once; `watch` yields the answer as it arrives, and
        `wait` returns the turn when it has ended.

        A `read_only` turn cannot start plans. Plans that a turn starts belong to the acting user. A text
        `/plan GOAL` starts a plan with this goal, without a model call. The model gets the `attachments`,
        images and PDFs made with `Attachment.of`, in this turn only. Raises `ConversationBusy`;
        `RequestRefused` for an empty or too long text, for attachments that are too large or that the model
        does not take, and if the conversation has too many turns.
        """

    def resume(self, conversation_id: str) -> TurnView:
        """Continue the last turn, which was interrupted, stopped or failed. Finished calls are not repeated.

        The turn runs with the rights of its author. Raises `RequestRefused` if the last turn is answered, or
        if another person sent it; the owner of this machine may continue the turns of others.
        """

    def stop(self, conversation_id: str) -> ConversationView:
        """Stop the running turn, so that it can be resumed. Returns at once; `wait` returns when the turn has
        ended.
        """

    def watch(self, conversation_id: str, *, after: int | None = None) -> Iterator[TurnOutputView]:
        """Yield the output of the last turn as it arrives, until the turn ends. With `after`, begin after
        this output number, for example the last one seen before an interruption.

        Each piece is yielded once, in order, even across a broken connection. Raises `ServerUnreachable` if
        the server does not come back.
        """

    def wait(self, conversation_id: str, *, timeout: float | None = None) -> TurnView:
        """Wait until the last turn ends, and return it. Raises `DeadlineExceeded`; `RequestRefused` without
        turns.
        """

    def output(self, conversation_id: str, *, after: int = 0, limit: int = 500) -> tuple[TurnOutputView, ...]:
        """Return the output after output number `after`, oldest first. Old output is dropped."""

    def file(self, conversation_id: str, path: str, *, line: int = 1) -> FileLinesView:
        """Return the lines around a line of a file of the repository, for example a line that an answer
        refers to.

        Raises `RequestRefused` if there is no such file, git ignores it, or it is not text.
        """

    def fork(self, conversation_id: str, *, turn: int | None = None) -> ConversationView:
        """Start a conversation with a copy of the turns up to `turn`, or of all ended turns. The plans of
        these turns stay with the source.
        """

    def rename(self, conversation_id: str, title: str) -> ConversationView:
        """Change the title, also while a turn runs. Raises `RequestRefused` for an empty title."""

    def raise_budget(self, conversation_id: str, limits: Limits) -> ConversationView:
        """Raise limits of the conversation, also while a turn runs. A limit is a total, and a limit of None
        stays. A turn that failed because of the budget is continued with `resume`.

        Raises `RequestRefused` without a limit, and for one below the present limit; `PriceUnknown`.
        """

    def compact(self, conversation_id: str) -> ConversationView:
        """Summarise all but the recent turns for later prompts, with one model call. The turns stay readable,
        and open plans stay known. Returns when the summary is stored.
        """

    def delete(self, conversation_id: str, *, only_unused: bool = False) -> None:
        """Delete a conversation with its turns. Its plans stay. With `only_unused`, a conversation with turns
        is refused.
        """


def followed(
    ended: Callable[[], bool],
    output: Callable[[int], Sequence[TurnOutputView]],
    sleep: Callable[[float], None],
    *,
    after: int,
) -> Iterator[TurnOutputView]:
    """Yield the output after number `after` until the turn ends. All output of a turn is stored before the
    turn ends.
    """
    pause = LOOK_SECONDS
    while True:
        over = ended()  # read before the output, or its end is missed
        pieces = output(after)
        for piece in pieces:
            after = piece.number
            yield piece
        if pieces:
            pause = LOOK_SECONDS
        elif over:
            return
        else:
            sleep(pause)
            pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)
