"""Conversations of a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cleveragents.api.conversations.client import (
    ConversationRequest,
    ConversationView,
    FileLinesView,
    TurnOutputView,
    TurnView,
)
from cleveragents.api.plans.client import until
from cleveragents.api.views import Page, understood, view_of
from cleveragents.conversations.model import TurnState
from cleveragents.core.errors import RequestRefused, UnknownConversation
from cleveragents.models.model.attachment import Attachment, ensure_attachable

if TYPE_CHECKING:
    from cleveragents.api.event_stream import StreamFrame
    from cleveragents.api.plans.request import Limits
    from cleveragents.api.transport import HttpTransport

__all__ = ["HttpConversations"]


class HttpConversations:
    """Conversations of a server."""

    def __init__(self, http: HttpTransport) -> None:
        self._http = http

    def create(self, request: ConversationRequest) -> ConversationView:
        if request.resource is None:
            raise RequestRefused("a server knows registered resources only: name one", "resource")
        body = {
            "resource": request.resource,
            "model": request.model,
            "profile": request.profile,
            "limits": request.limits.body(),
        }
        return view_of(ConversationView, self._http.post("/conversations", body))

    def list(
        self,
        *,
        project: str | None = None,
        resource: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[ConversationView]:
        query = {"project": project, "resource": resource}
        return self._http.page(ConversationView, "/conversations", limit, after, **query)

    def get(self, conversation_id: str) -> ConversationView:
        return view_of(ConversationView, self._http.get(_path(conversation_id)))

    def turns(self, conversation_id: str, *, limit: int = 100, after: str | None = None) -> Page[TurnView]:
        return self._http.page(TurnView, _path(conversation_id, "turns"), limit, after)

    def send(
        self,
        conversation_id: str,
        text: str,
        *,
        read_only: bool = False,
        attachments: Sequence[Attachment] = (),
    ) -> TurnView:
        ensure_attachable(attachments)  # guard: a large body is not sent in vain
        body: dict[str, object] = {"text": text, "read_only": read_only}
        if attachments:  # older servers do not know the field
            body["attachments"] = [{"name": one.name, "content": one.base64} for one in attachments]
        return view_of(TurnView, self._http.post(_path(conversation_id, "turns"), body))

    def resume(self, conversation_id: str) -> TurnView:
        return view_of(TurnView, self._http.post(_path(conversation_id, "resume")))

    def stop(self, conversation_id: str) -> ConversationView:
        return view_of(ConversationView, self._http.post(_path(conversation_id, "stop")))

    def watch(self, conversation_id: str, *, after: int | None = None) -> Iterator[TurnOutputView]:
        from cleveragents.api.event_stream import Follower

        found = self.get(conversation_id)
        begins = self._http.get(_path(found.id, "output"), limit=1)["begins"] if after is None else after
        follower = Follower(self._http, None)
        follower.listen_to(found.id, int(begins))
        # A connection begins with a frame without data: a turn that ended before it is noticed, too.
        for frame in follower.frames():
            if frame.kind == "output":
                with understood():
                    yield view_of(TurnOutputView, {"conversation_id": found.id, **frame.data})
            elif _may_end(frame, found.id) and self.get(found.id).state is not TurnState.RUNNING:
                break
        # All output of a turn is stored before its end; the stream may not have sent all of it.
        while pieces := self.output(found.id, after=follower.number_of(found.id)):
            for piece in pieces:
                follower.is_new({"plan_id": found.id, "number": piece.number})
                yield piece

    def wait(self, conversation_id: str, *, timeout: float | None = None) -> TurnView:
        for _ in until(timeout, f"waiting for session {conversation_id}", self._http.sleep):
            found = self.get(conversation_id)
            if found.state is not TurnState.RUNNING:
                break
        last = self.turns(conversation_id, limit=1, after=str(max(0, found.turns - 1))).items
        if not last:
            raise RequestRefused(f"session {found.id} has no turns", "conversation_id")
        return last[0]

    def output(self, conversation_id: str, *, after: int = 0, limit: int = 500) -> tuple[TurnOutputView, ...]:
        said = self._http.get(_path(conversation_id, "output"), after=after, limit=min(limit, 1000))
        with understood(said.status):
            return tuple(view_of(TurnOutputView, piece) for piece in said["items"])

    def file(self, conversation_id: str, path: str, *, line: int = 1) -> FileLinesView:
        return view_of(FileLinesView, self._http.get(_path(conversation_id, "file"), path=path, line=line))

    def fork(self, conversation_id: str, *, turn: int | None = None) -> ConversationView:
        return view_of(ConversationView, self._http.post(_path(conversation_id, "fork"), {"turn": turn}))

    def rename(self, conversation_id: str, title: str) -> ConversationView:
        return view_of(ConversationView, self._http.patch(_path(conversation_id), {"title": title}))

    def raise_budget(self, conversation_id: str, limits: Limits) -> ConversationView:
        return view_of(ConversationView, self._http.post(_path(conversation_id, "budget"), limits.body()))

    def compact(self, conversation_id: str) -> ConversationView:
        return view_of(ConversationView, self._http.post(_path(conversation_id, "compact")))

    def delete(self, conversation_id: str, *, only_unused: bool = False) -> None:
        self._http.delete(_path(conversation_id), only_unused="true" if only_unused else None)


def _may_end(frame: StreamFrame, conversation_id: str) -> bool:
    """Return whether the turn may have ended: an event is about the conversation, or a connection begins or
    is silent. A turn whose process died reports nothing.
    """
    facts = frame.data.get("facts")
    return not frame.kind or (isinstance(facts, dict) and facts.get("conversation") == conversation_id)


def _path(conversation_id: str, part: str = "") -> str:
    if not conversation_id.isalnum() or not conversation_id.isascii():  # guard: not another address
        raise UnknownConversation(conversation_id)
    return f"/conversations/{conversation_id}{f'/{part}' if part else ''}"
