"""The follower of a server passes on the events that precede a piece of output before that piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from cleveragents.server.streams.hub import EventHub
from cleveragents.server.streams.log_follower import LogFollower


class Working:
    """A source and a hub. An event and then an output are stored after a given number of reads."""

    def __init__(self, event_after: int, output_after: int) -> None:
        self.event_after, self.output_after = event_after, output_after
        self.reads = 0
        self.seen: list[str] = []

    def watched(self) -> Mapping[str, int]:
        return {"P": self.seen.count("output")}

    def take_events(self, after: int, frames: Sequence[bytes]) -> bool:
        self.seen.append("event")
        return True

    def take_output(self, plan_id: str, pieces: Sequence[tuple[int, bytes]]) -> None:
        self.seen.append("output")

    def end(self) -> int:
        return 0

    def bring_up(self) -> None: ...

    def last_output(self, plan_id: str) -> int:
        return 0

    def frames(self, after: int) -> Sequence[bytes]:
        self.reads += 1
        return [b"event"] if self.event_after < self.reads and after == 0 else []

    def output(self, plan_id: str, after: int) -> Sequence[tuple[int, bytes]]:
        self.reads += 1
        return [(1, b"output")] if self.output_after < self.reads and after == 0 else []


def test_an_event_comes_before_the_output_that_follows_it() -> None:
    for event_after in range(4):
        for output_after in range(event_after, 6):
            working = Working(event_after, output_after)
            follower = LogFollower(working, cast(EventHub, working), 0)
            for _ in range(5):
                follower._look()
            assert working.seen == ["event", "output"], (event_after, output_after)
