"""Updates of an agent while it works: collected, limited, and reported as progress. Also the limits of a
session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cleveragents.actors.model.actor import ProgressKind
from cleveragents.actors.ports import AgentUpdate, PermissionRequest
from cleveragents.core.errors import InvalidPayload
from cleveragents.core.json_value import freeze
from cleveragents.processes.passthrough import NO_SECRETS, SecretMask

if TYPE_CHECKING:
    from acp.schema import AgentPlanUpdate, ToolCallProgress, ToolCallStart, ToolCallUpdate

__all__ = ["SessionBounds", "Updates"]


_FLUSH_SECONDS = 0.1
_MOST_TEXT = 200_000
_MOST_PIECE = 4_000
_SHOWN = 300
_MOST_CALLS = 10_000
_READS = ("read", "search", "think", "fetch")
_MARKS = {"completed": "x", "in_progress": "~", "pending": " "}


@dataclass(frozen=True, slots=True)
class _Call:
    """A tool call of the agent, as far as the agent has reported it."""

    kind: str = "other"
    title: str = ""
    paths: tuple[str, ...] = ()
    details: Any = None


class Updates:
    """Collects the updates of one session, and passes them to `tell` and `did`.

    These must not block. Not thread-safe: only the session's loop uses it.
    """

    def __init__(
        self,
        tell: Callable[[AgentUpdate], None],
        did: Callable[[str], None],
        shown: int,
        mask: SecretMask = NO_SECRETS,
    ) -> None:
        self._tell = tell
        self._did = did
        self._left_to_show = shown
        self._calls: dict[str, _Call] = {}
        self._said = ""
        self._is_over = False
        self._pieces = {ProgressKind.PIECE: "", ProgressKind.THINKING: ""}
        self._mask = mask
        self._masked = {ProgressKind.PIECE: mask.stream(), ProgressKind.THINKING: mask.stream()}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def text(self) -> str:
        """The last message, or the end of it."""
        return self._said + self._masked[ProgressKind.PIECE].rest

    def take(self, update: object) -> None:
        """Process one update of any kind."""
        from acp import schema

        match update:
            case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text)):
                self._say(text)
            case schema.AgentThoughtChunk(content=schema.TextContentBlock(text=text)):
                self._gather(ProgressKind.THINKING, self._masked[ProgressKind.THINKING].feed(text))
            case schema.ToolCallStart() | schema.ToolCallProgress():
                self._take_call(update)
            case schema.AgentPlanUpdate():
                self._take_plan(update)

    def wanted(self, call: ToolCallUpdate) -> PermissionRequest:
        """Return the action that the agent requests permission for, combined with earlier updates about the
        same call.
        """
        known = self._noted(call)
        try:
            details = freeze(known.details)
        except InvalidPayload:
            details = None
        return PermissionRequest(known.kind, known.title, known.paths, details)

    def finish(self) -> None:
        """Report everything that is still pending."""
        self._end_message()
        self._end_of(ProgressKind.THINKING)
        self.flush()

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for kind, text in self._pieces.items():
            if text:
                self._pieces[kind] = ""
                shown = text if kind is ProgressKind.PIECE else " ".join(text.split())[-_SHOWN:]
                self._tell(AgentUpdate(kind, shown))

    def _say(self, text: str) -> None:
        if self._is_over:  # after another update, a new message starts
            self._said, self._is_over = "", False
        self._add(self._masked[ProgressKind.PIECE].feed(text))

    def _add(self, text: str) -> None:
        self._said = (self._said + text)[-_MOST_TEXT:]  # guard: an agent may send text for ever
        self._gather(ProgressKind.PIECE, text)

    def _end_of(self, kind: ProgressKind) -> None:
        self._gather(kind, self._masked[kind].finish())

    def _gather(self, kind: ProgressKind, text: str) -> None:
        """Collect text into larger updates, because agents send an update per token."""
        if not text:
            return
        self._pieces[kind] = (self._pieces[kind] + text)[-_MOST_PIECE:]
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)

    def _end_message(self) -> None:
        if not self._is_over:
            self._add(self._masked[ProgressKind.PIECE].finish())
        if self._said and not self._is_over:
            self.flush()
            self._show(ProgressKind.THOUGHT, self._said)
            self._is_over = True

    def _take_call(self, update: ToolCallStart | ToolCallProgress) -> None:
        begins = update.tool_call_id not in self._calls
        call = self._noted(update)
        self._end_message()
        if begins:
            self._show(ProgressKind.TOOL, call.title[:_SHOWN])
        if update.status in ("completed", "failed"):
            self._calls.pop(update.tool_call_id, None)
            self._show(ProgressKind.TOOL_DONE, call.title[:_SHOWN], failed=update.status == "failed")
            if call.kind not in _READS:
                self._did(call.title)

    def _take_plan(self, update: AgentPlanUpdate) -> None:
        self._end_message()
        entries = [(entry.status, self._mask.text(entry.content)) for entry in update.entries[:_SHOWN]]
        lines = [f"[{_MARKS[status]}] {content[:_SHOWN]}" for status, content in entries]
        self._show(ProgressKind.THOUGHT, "; ".join(lines)[:_MOST_PIECE])

    def _noted(self, update: ToolCallStart | ToolCallProgress | ToolCallUpdate) -> _Call:
        call = self._calls.get(update.tool_call_id, _Call())
        if update.kind is not None:
            call = replace(call, kind=update.kind)
        if update.title is not None:
            call = replace(call, title=str(self._mask.exact(update.title)))
        if update.locations is not None:
            call = replace(call, paths=tuple(str(self._mask.exact(place.path)) for place in update.locations))
        if update.raw_input is not None:
            call = replace(call, details=self._mask.exact(update.raw_input))
        if len(self._calls) < _MOST_CALLS:  # guard: memory stays bounded
            self._calls[update.tool_call_id] = call
        return call

    def _show(self, kind: ProgressKind, text: str, *, failed: bool = False) -> None:
        if self._left_to_show > 0:  # guard: a viewer must not be flooded
            self._left_to_show -= 1
            self._tell(AgentUpdate(kind, text, failed))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBounds:
    """Limits of a session.

    `start_seconds` bounds the start, which may include a download; `cancel_seconds` the end of a turn after a
    cancellation. `messages` and `bytes_` bound all output, `requests` the concurrent requests, `turn_seconds`
    the wait of a request for earlier ones, `terminals` the open terminals, and `shown` the progress updates.
    """

    start_seconds: float = 60.0
    cancel_seconds: float = 0.5
    messages: int = 100_000
    bytes_: int = 256 << 20
    requests: int = 64
    turn_seconds: float = 10.0
    terminals: int = 32
    shown: int = 5_000
