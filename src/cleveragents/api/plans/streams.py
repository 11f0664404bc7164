"""The live stream of plans: events and output, of this machine or of a server.

A stream has its own cursor: the position of the last event, and the number of the last output of each plan.
No event or output is missed or delivered twice.

A worker of a queue stores the output of its plans. A plan without a queue prints its output in the terminal
where it runs, and the output is not stored. In other processes, followers get the tool calls, model calls and
checks of such a plan from its records.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from cleveragents.api.client import HttpClient, LocalClient
from cleveragents.api.events import EventView
from cleveragents.api.format import timestamp
from cleveragents.api.plans.detail_views import OutputView
from cleveragents.api.views import understood, view_of
from cleveragents.plans.jobs.names import queue_of

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.app.plan_parts import PlanParts

__all__ = ["News", "PlanStream", "plan_stream"]

News = EventView | OutputView | None
"""An event or a piece of output; None is a heartbeat, at which a follower may check its plans."""

_LOOK_SECONDS = 0.2
_PIECES = 500


class PlanStream(Protocol):
    """Events after a position, and the output of some plans. Not thread-safe: use it in one thread."""

    in_order: bool
    """Whether `news` yields each piece of output between the events around it."""

    @property
    def position(self) -> int:
        """The position of the last event."""

    def listen_to(self, plan_id: str, after: int = 0) -> None:
        """Also follow the output of this plan, beginning after output number `after`."""

    def news(self) -> Iterator[News]:
        """Yield news for ever.

        Raises `ServerUnreachable` if a server does not come back, `NotAuthenticated`.
        """

    def kept(self, plan_ids: Iterable[str]) -> Iterator[OutputView]:
        """Yield the stored output of these plans that was not delivered yet, in order of time."""


def plan_stream(client: Client, after: int) -> PlanStream:
    """Return the stream of a client after that position of the log."""
    if isinstance(client, HttpClient):
        return _HttpStream(client, after)
    assert isinstance(client, LocalClient)
    return _LocalStream(client, after)


class _HttpStream:
    """The stream of a server, over one connection that is reopened after a break."""

    in_order = False

    def __init__(self, client: HttpClient, after: int) -> None:
        from cleveragents.api.event_stream import Follower

        self._client = client
        self._follower = Follower(client.http, after)

    @property
    def position(self) -> int:
        return self._follower.position

    def listen_to(self, plan_id: str, after: int = 0) -> None:
        self._follower.listen_to(plan_id, after)

    def news(self) -> Iterator[News]:
        from cleveragents.api.events import event_view

        with understood():
            for frame in self._follower.frames():
                if not frame.kind:
                    yield None
                elif frame.kind == "output":
                    # Frames of a server of 0.1.0 have no time: they come when they are printed.
                    yield view_of(OutputView, {"time": timestamp(datetime.now(UTC)), **frame.data})
                else:
                    yield event_view(frame.data)

    def kept(self, plan_ids: Iterable[str]) -> Iterator[OutputView]:
        ways = [_printed(self._client, one, self._follower.number_of(one)) for one in plan_ids]
        for piece in heapq.merge(*ways, key=lambda piece: piece.time):
            if self._follower.is_new({"plan_id": piece.plan_id, "number": piece.number}):
                yield piece


class _LocalStream:
    """The events of this machine's database, read by polling."""

    in_order = True

    def __init__(self, client: LocalClient, after: int) -> None:
        self._client = client
        self._position = after
        self._numbers: dict[str, int] = {}
        self._records: dict[str, _Records] = {}
        self._read: deque[OutputView] = deque()

    @property
    def position(self) -> int:
        return self._position

    def listen_to(self, plan_id: str, after: int = 0) -> None:
        if plan_id in self._numbers:
            return
        self._numbers[plan_id] = after
        parts = self._client.access.container.plan_parts
        plan = parts.plans.get(plan_id)
        if not queue_of(parts.plans.get(plan.root).request):
            self._records[plan_id] = _Records(parts, plan_id)

    def news(self) -> Iterator[News]:
        while True:
            # guard: read before the events, so that all events that precede this output are known
            self._look_at(self._numbers)
            known = len(self._read)
            page = self._client.events.list(after=self._position, limit=_PIECES)
            self._look_at(self._numbers)  # again: output that precedes the last event may be newer
            for event in page.items:
                while self._read and event.time is not None and self._read[0].time <= event.time:
                    known -= 1
                    yield self._read.popleft()
                self._position = event.position
                yield event
            while known > 0 and page.next is None:  # later output may follow events that are not read yet
                known -= 1
                yield self._read.popleft()
            yield None
            time.sleep(_LOOK_SECONDS)

    def kept(self, plan_ids: Iterable[str]) -> Iterator[OutputView]:
        self._look_at(plan_ids)
        yield from self._unread()

    def _look_at(self, plan_ids: Iterable[str]) -> None:
        for piece in heapq.merge(*map(self._new_of, plan_ids), key=lambda piece: piece.time):
            self._numbers[piece.plan_id] = max(piece.number, self._numbers.get(piece.plan_id, 0))
            self._read.append(piece)

    def _unread(self) -> Iterator[OutputView]:
        while self._read:
            yield self._read.popleft()

    def _new_of(self, plan_id: str) -> Iterable[OutputView]:
        records = self._records.get(plan_id)
        if records is not None:
            return records.new()
        return _printed(self._client, plan_id, self._numbers.get(plan_id, 0))


def _printed(client: Client, plan_id: str, after: int) -> Iterator[OutputView]:
    while pieces := client.plans.output(plan_id, after=after, limit=_PIECES):
        yield from pieces
        after = pieces[-1].number


class _Records:
    """The records of a plan that were already passed on."""

    def __init__(self, parts: PlanParts, plan_id: str) -> None:
        self._parts = parts
        self._plan_id = plan_id
        self._number = 0
        self._calls: dict[int, bool] = {}
        self._thoughts = 0
        self._checks = 0

    def new(self) -> list[OutputView]:
        """Return the new records in order of time."""
        news = [*self._of_calls(), *self._of_thoughts(), *self._of_checks()]
        return sorted(news, key=lambda piece: piece.time)

    def _of_calls(self) -> Iterator[OutputView]:
        """Yield a line when a call starts and one when it has ended."""
        from cleveragents.api.plans.details import arguments_text

        for call in self._parts.history.calls(self._plan_id):
            told = self._calls.get(call.number)
            if told is None:
                said = " ".join(f"{call.tool} {arguments_text(call.arguments)}".split())
                yield self._node(call.started_at, {"actor": call.tool, "node": call.step or ""})
                yield self._piece(call.started_at, "progress", f"  {said}\n")
            if call.ended_at is not None and not told:
                yield self._ended(call.ended_at, call.tool, call.step or "", call.error)
            self._calls[call.number] = call.ended_at is not None

    def _ended(self, moment: datetime, tool: str, step: str, error: str | None) -> OutputView:
        if error is None:
            return self._node(moment, {"actor": tool, "node": step, "event": "tool_done"})
        return self._piece(moment, "progress", f"    it failed: {' '.join(error.split())}\n")

    def _of_thoughts(self) -> Iterator[OutputView]:
        thoughts = self._parts.actor_parts.budgets.calls_of(self._plan_id)
        for one in thoughts[self._thoughts :]:
            at = {"actor": one.actor, "node": one.node, "event": "thinking", "text": one.model}
            yield self._node(one.started_at, at)
        self._thoughts = len(thoughts)

    def _of_checks(self) -> Iterator[OutputView]:
        checks = self._parts.check_runs.of_plan(self._plan_id)
        for check in checks[self._checks :]:
            # A name with a line break must not imitate another message.
            name = " ".join(check.name.split())
            verdict = check.verdict.value.replace("_", " ")
            yield self._piece(check.ended_at, "progress", f"check {name}: {verdict}\n")
        self._checks = len(checks)

    def _node(self, moment: datetime, at: Mapping[str, str]) -> OutputView:
        return self._piece(moment, "node", json.dumps(at, ensure_ascii=False))

    def _piece(self, moment: datetime, kind: str, text: str) -> OutputView:
        self._number += 1
        return OutputView(plan_id=self._plan_id, number=self._number, kind=kind, text=text, time=moment)
