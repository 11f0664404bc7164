"""The stream of a plan on this machine has its events and its output in the order in which they happened."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement, islice
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cleveragents.api.client import LocalClient
from cleveragents.api.events import EventPage, EventView
from cleveragents.api.plans import streams
from cleveragents.api.plans.detail_views import OutputView

_START = datetime(2026, 1, 1, tzinfo=UTC)


def moved(second: int, phase: str, state: str) -> EventView:
    return EventView(
        position=second,
        time=_START + timedelta(seconds=second),
        type="plan.moved",
        subject="P",
        facts={"phase": phase, "state": state},
        event_id=str(second),
        hash="",
    )


def piece(second: int, text: str) -> OutputView:
    time = _START + timedelta(seconds=second)
    return OutputView(plan_id="P", number=second, kind="progress", text=text, time=time)


HISTORY = [
    moved(1, "strategize", "processing"),
    piece(2, "planned: 1. Edit\n"),
    moved(3, "execute", "processing"),
    piece(4, "  write a.txt\n"),
    moved(5, "execute", "complete"),
]


class Worker:
    """A plan whose history grows after some of the reads of its follower."""

    def __init__(self, after_reads: tuple[int, ...]) -> None:
        self.after_reads = after_reads
        self.reads = 0
        self.events = self
        self.plans = SimpleNamespace(output=self.output)
        plan = SimpleNamespace(root="P", request={"queue": "default"})
        parts = SimpleNamespace(plans=SimpleNamespace(get=lambda plan_id: plan))
        self.access = SimpleNamespace(container=SimpleNamespace(plan_parts=parts))

    def list(self, *, after: int, limit: int) -> EventPage:
        found = [one for one in self._read() if isinstance(one, EventView) and one.position > after]
        return EventPage(items=tuple(found), next=None, warning=None)

    def output(self, plan_id: str, *, after: int, limit: int) -> list[OutputView]:
        return [one for one in self._read() if isinstance(one, OutputView) and one.number > after]

    def _read(self) -> list[Any]:
        self.reads += 1
        return HISTORY[: sum(after < self.reads for after in self.after_reads)]


def seen(worker: Worker) -> Iterator[EventView | OutputView]:
    stream = streams._LocalStream(cast(LocalClient, worker), after=0)
    stream.listen_to("P")
    return (news for news in islice(stream.news(), 20) if news is not None)


def test_output_comes_between_the_events_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_LOOK_SECONDS", 0)
    for after_reads in combinations_with_replacement(range(7), len(HISTORY)):
        assert [*seen(Worker(after_reads))] == HISTORY, after_reads
