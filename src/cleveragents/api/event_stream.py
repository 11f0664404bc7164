"""Follows the event stream of a server across broken connections: no event is missed or seen twice.

The client keeps the cursor: the position of the last event, and the number of the last output of each plan.
After a reconnect, the server continues at the cursor.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cleveragents.api.transport import HttpTransport

__all__ = ["Follower", "StreamFrame"]

_MOST_OUTPUTS = 20
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class StreamFrame:
    """An event, a piece of output (`kind` is "output"), or a heartbeat ("", no data)."""

    kind: str
    data: Mapping[str, Any]


class Follower:
    """Events after a position, and the output of some plans. Not thread-safe: use it in one thread."""

    def __init__(self, http: HttpTransport, after: int | None) -> None:
        self._http = http
        self._position = after
        self._numbers: dict[str, int] = {}
        self._joins_anew = False

    def listen_to(self, plan_id: str, after: int = 0) -> None:
        """Also follow the output of this plan, beginning after output number `after`. Only the latest twenty
        plans are followed.
        """
        if plan_id not in self._numbers:
            self._numbers[plan_id] = after
            self._joins_anew = True

    @property
    def position(self) -> int:
        """The position of the last event."""
        return self._position or 0

    def number_of(self, plan_id: str) -> int:
        """Return the number of the plan's last output."""
        return self._numbers.get(plan_id, 0)

    def is_new(self, piece: Mapping[str, Any]) -> bool:
        """Return whether this output is new, and mark it as seen."""
        plan_id, number = str(piece["plan_id"]), int(piece["number"])
        if number <= self._numbers.get(plan_id, 0):  # guard: seen before the connection broke
            return False
        self._numbers[plan_id] = number
        return True

    def frames(self) -> Iterator[StreamFrame]:
        """Yield frames for ever. Raises `ServerUnreachable` if the server does not come back,
        `NotAuthenticated`.
        """
        import httpx

        cut: Exception = httpx.ReadError("the stream broke")
        while True:
            opened = False
            for _ in self._http.trying():
                try:
                    for frame in self._of_one_connection():
                        opened = True
                        yield frame
                except httpx.TransportError as error:
                    cut = error
                except Exception as error:
                    if not self._http.is_busy(error):
                        raise
                    cut = error
                if opened or self._joins_anew:
                    break
                if not self._http.answered:
                    raise self._http.unreachable(cut) from None
            else:
                raise self._http.unreachable(cut) from None
            if not self._joins_anew:
                time.sleep(_PAUSE_SECONDS)  # never retry without a pause

    def _of_one_connection(self) -> Iterator[StreamFrame]:
        latest = list(self._numbers.items())[-_MOST_OUTPUTS:]
        outputs = [f"{plan_id}:{number}" for plan_id, number in latest]
        self._joins_anew = False
        with self._http.streamed("/events/stream", {"after": self._position, "output": outputs}) as lines:
            for kind, identity, data in _parsed(lines):
                frame = self._taken(kind, identity, data)
                if frame is not None:
                    yield frame
                if self._joins_anew:
                    return

    def _taken(self, kind: str, identity: str | None, data: str) -> StreamFrame | None:
        """Return the frame if it is new."""
        told = json.loads(data) if data else {}
        if kind == "output":
            return StreamFrame(kind, told) if self.is_new(told) else None
        if identity is None or not identity.isdecimal():
            return StreamFrame("", {})
        position = int(identity)
        if kind == "reset":  # the log is a different one
            self._position = position
            return StreamFrame("", {})
        if not data:
            self._position = position if self._position is None else self._position
            return StreamFrame("", {})
        if self._position is not None and position <= self._position:  # guard: seen already
            return None
        self._position = position
        return StreamFrame(kind, told)


def _parsed(lines: Iterator[str]) -> Iterator[tuple[str, str | None, str]]:
    """Yield the kind, id and data of each server-sent event. For a comment, id and data are empty."""
    kind, identity, data = "", None, ""
    for line in lines:
        if not line:
            yield kind, identity, data
            kind, identity, data = "", None, ""
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "id":
            identity = value
        elif name == "data":
            data += value
