"""Views made of the documented examples, and a client that shows them, for the terminal app without an
engine. Events and answers arrive when a test feeds them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import replace
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from cleveragents.api.client import Client
from cleveragents.api.conversations.client import (
    ConversationRequest,
    ConversationView,
    TurnOutputView,
    TurnView,
)
from cleveragents.api.events import EventView
from cleveragents.api.plans.views import LimitsView, PlanView, SpendingView
from cleveragents.api.views import Page, as_json, view_of
from cleveragents.conversations.model import TurnState
from cleveragents.models.model.attachment import Attachment

__all__ = ["FedEvents", "FedSessions", "ShownPlans", "client_of", "event", "example", "plan", "session"]

_View = TypeVar("_View")
_EMPTY: dict[str, Any] = {"int": 0, "str": "", "bool": False}


def example(kind: type[_View], /, **changes: object) -> _View:
    """Return a view with the examples of the API documentation, except for the given fields."""
    known: dict[str, Any] = {}
    view: Any = kind
    for field in dataclasses.fields(view):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.metadata.get("examples"):
            known[field.name] = field.metadata["examples"][0]
        elif required:
            known[field.name] = [] if str(field.type).startswith("tuple") else _EMPTY.get(str(field.type))
    return view_of(kind, {**known, **{name: _json(value) for name, value in changes.items()}})


def plan(**changes: object) -> PlanView:
    """Return a plan whose result is ready for review, except for the given fields."""
    return example(PlanView, **{"spending": SpendingView(), **changes})


def session(**changes: object) -> ConversationView:
    """Return a session with the examples, except for the given fields."""
    limits = LimitsView(usd=None, tokens=None, steps=None, seconds=None)
    return example(ConversationView, **{"limits": limits, **changes})


def event(position: int, plan_id: str) -> EventView:
    """Return an event of a plan."""
    return example(EventView, position=position, subject=plan_id, facts={})


def _json(value: object) -> Any:
    if isinstance(value, list | tuple):
        return [_json(one) for one in value]
    return as_json(value) if dataclasses.is_dataclass(value) else value


_PIECE = example(TurnOutputView, kind="model")


class ShownPlans:
    """Plans that never change by themselves; a test replaces them. Everything else about a plan is empty."""

    def __init__(self, *plans: PlanView) -> None:
        self.shown = {one.id: one for one in plans}
        self.reads = 0

    def list(self, **_: object) -> Page[PlanView]:
        self.reads += 1
        return Page(items=tuple(self.shown.values()))

    def get(self, plan_id: str) -> PlanView:
        return self.shown[plan_id]

    summary = get

    def decisions(self, plan_id: str, **_: object) -> Page[Any]:
        return Page(items=())

    def comments(self, plan_id: str, **_: object) -> Page[Any]:
        return Page(items=())

    def output(self, plan_id: str, **_: object) -> Sequence[Any]:
        return ()


class FedEvents:
    """An event log that grows when a test feeds it."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[EventView | None] = SimpleQueue()

    def list(self, **_: object) -> Page[EventView]:
        return Page(items=())

    def follow(self, **_: object) -> Iterator[EventView]:
        while (found := self.queue.get()) is not None:
            yield found


class FedSessions:
    """One session. The answer of a running turn arrives when a test feeds it; None ends the turn."""

    def __init__(self, *turns: TurnView) -> None:
        self.queue: SimpleQueue[str | None] = SimpleQueue()
        self._turns = list(turns)
        self._pieces = 0

    def create(self, request: ConversationRequest) -> ConversationView:
        return self.get("S")

    def get(self, session_id: str) -> ConversationView:
        return session(id=session_id, turns=len(self._turns))

    def turns(self, session_id: str, **_: object) -> Page[TurnView]:
        return Page(items=tuple(self._turns))

    def send(self, session_id: str, text: str, *, attachments: Sequence[Attachment] = ()) -> TurnView:
        number = len(self._turns) + 1
        self._turns.append(
            example(TurnView, number=number, question=text, answer="", state=TurnState.RUNNING)
        )
        return self._turns[-1]

    def watch(self, session_id: str) -> Iterator[TurnOutputView]:
        while (text := self.queue.get()) is not None:
            self._pieces += 1
            yield replace(_PIECE, number=self._pieces, text=text)

    def wait(self, session_id: str) -> TurnView:
        self._turns[-1] = replace(self._turns[-1], state=TurnState.ANSWERED)
        return self._turns[-1]


def client_of(plans: ShownPlans, events: FedEvents, sessions: FedSessions) -> Client:
    """Return a client with these parts. Closing it ends the events and the answer."""

    def close() -> None:
        events.queue.put(None)
        sessions.queue.put(None)

    client: Any = SimpleNamespace(plans=plans, events=events, conversations=sessions, close=close)
    return cast(Client, client)
