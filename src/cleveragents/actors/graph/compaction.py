"""Keeps a conversation within what a model reads.

First the answers of tools that are long past are cut to their heads; then the oldest exchanges give way to a
summary by the model itself; where that is not to be had, or does not fit, they are left out. What a model
asked for and what it was answered stay together throughout, for no provider takes one without the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from cleveragents.core.errors import ContextTooLong
from cleveragents.models.model.conversation import Message, Role

__all__ = ["SUMMARY_SYSTEM", "Fitted", "Window", "fitted", "transcript"]

SUMMARY_SYSTEM = (
    "You summarise the work of an assistant so that it can go on from your summary alone. Say what was "
    "asked, what was found out, which files were read or changed and how, what failed and why, and what is "
    "still to be done. Names, paths and numbers exactly as they are. No more than 300 words."
)

_KEPT_EXCHANGES = 2
_HEAD_CHARACTERS = 400
_LAST_RESORTS = (8000, 2000, 500, 100)

Summarise = Callable[[Sequence[Message]], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Window:
    """What a model can read. `count` says what a request with these messages takes; up to `comfortable`
    tokens nothing is cut, beyond `limit` nothing can be asked."""

    model: str
    count: Callable[[Sequence[Message]], int]
    comfortable: int
    limit: int

    def fits(self, messages: Sequence[Message]) -> bool:
        return self.count(messages) <= self.comfortable


@dataclass(frozen=True, slots=True)
class Fitted:
    """Messages that fit. `asked_model`: a summary was asked for, whether it was of use or not."""

    messages: list[Message]
    asked_model: bool = False


async def fitted(messages: list[Message], window: Window, summarise: Summarise) -> Fitted:
    """The same conversation, shortened as far as it must be. `ContextTooLong` when nothing helps."""
    if window.fits(messages):
        return Fitted(messages)
    head, exchanges = _parts(messages)
    old, recent = exchanges[:-_KEPT_EXCHANGES], exchanges[-_KEPT_EXCHANGES:]
    shorter = [_cut(exchange, _HEAD_CHARACTERS) for exchange in old]
    if window.fits(_joined(head, [*shorter, *recent])):
        return Fitted(_joined(head, [*shorter, *recent]))
    if not old or not window.fits(_joined(head, recent)):
        return Fitted(_without_oldest(head, exchanges, window))
    summary = await summarise(_joined([], old))
    noted = [*head, _note(f"Your work so far, summarised:\n{summary}")]
    if summary is None or not window.fits(_joined(noted, recent)):  # guard: a summary may be too long as well
        return Fitted(_without_oldest(head, exchanges, window), asked_model=True)
    return Fitted(_joined(noted, recent), asked_model=True)


def transcript(messages: Sequence[Message]) -> str:
    """As text, to be summarised."""
    lines = []
    for message in messages:
        lines.append(f"[{message.role.value}] {message.text}")
        lines += [f"[calls {request.tool}] {_arguments(request.arguments)}" for request in message.requests]
    return "\n".join(lines)


def _without_oldest(head: list[Message], exchanges: list[list[Message]], window: Window) -> list[Message]:
    left_out = [*head, _note("Earlier exchanges were left out, for want of room.")]
    for first in range(1, len(exchanges)):
        if window.fits(_joined(left_out, exchanges[first:])):
            return _joined(left_out, exchanges[first:])
    tried = head
    for characters in _LAST_RESORTS if exchanges else ():
        tried = _joined(left_out, [_cut(exchanges[-1], characters)])
        if window.fits(tried):
            return tried
    if exchanges and window.count(tried) > window.limit:
        tried = [*head, _note(f"Your last step was too long to be kept: {_named(exchanges[-1])}.")]
    needed = window.count(tried)
    if needed > window.limit:  # guard: what no model can read is not sent
        raise ContextTooLong(window.model, needed, window.limit)
    return tried


def _parts(messages: list[Message]) -> tuple[list[Message], list[list[Message]]]:
    """What comes before the first answer of the model: the instructions and the task; and every answer with
    all that follows it. An earlier summary is the first exchange's own, so that it is summarised again."""
    first = next((n for n, message in enumerate(messages) if message.role is Role.USER), 0) + 1
    exchanges: list[list[Message]] = []
    for message in messages[first:]:
        if message.role is Role.ASSISTANT or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return messages[:first], exchanges


def _cut(exchange: list[Message], characters: int) -> list[Message]:
    return [_shortened(message, characters) if message.role is Role.TOOL else message for message in exchange]


def _shortened(message: Message, characters: int) -> Message:
    if len(message.text) <= characters:
        return message
    gone = len(message.text) - characters
    return replace(message, text=f"{message.text[:characters]}\n… {gone} more characters were left out")


def _joined(head: list[Message], exchanges: Sequence[Sequence[Message]]) -> list[Message]:
    return [*head, *(message for exchange in exchanges for message in exchange)]


def _note(text: str) -> Message:
    return Message(Role.USER, text)


def _named(exchange: list[Message]) -> str:
    calls = [f"{request.tool}({_arguments(request.arguments)})" for m in exchange for request in m.requests]
    return ", ".join(calls) or "an answer"


def _arguments(arguments: object) -> str:
    spelt = repr(dict(arguments)) if isinstance(arguments, dict) else str(arguments)
    return spelt if len(spelt) <= _HEAD_CHARACTERS else f"{spelt[:_HEAD_CHARACTERS]}…"
