"""The terminal app: the time from an event to the screen, and its memory after an hour of streaming.

    python -m benchmarks.terminal_app [--samples 100] [--rate-seconds 20] [--events 200000] [--seconds 60]

The app runs without a terminal, at 110 columns. The first part uses the real engine on a scratch repository:
a plan is paused and resumed, and the time counts from the return of the call, after its commit, to the first
paint of the board with the new status. In "at rest" nothing happens between two changes; "back to back" makes
each change as soon as the one before is shown, so that it also waits for the least time between two readings
of the list of plans. The second part feeds 1,000 events of plans and 1,000 pieces of an answer per second for
`--rate-seconds`, and measures the time until each of them is painted. The last part feeds turns of 1,000
pieces, and as many events of plans, as fast as the app takes them, for at most `--seconds`, and prints the
resident memory on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import RenderableType
from textual.pilot import Pilot
from textual.screen import Screen

from cleveragents.api.client import Client, LocalClient, connect
from cleveragents.api.conversations.client import ConversationRequest, TurnView
from cleveragents.api.plans.request import PlanRequest
from cleveragents.cli.terminal_app.app import TerminalApp
from cleveragents.cli.terminal_app.turn_block import TurnBlock
from cleveragents.conversations.model import TurnState
from cleveragents.plans.model.status import PlanStatus
from tests.plan_bench import new_repository
from tests.terminal_bench import until
from tests.terminal_views import FedEvents, FedSessions, ShownPlans, client_of, event, example, plan

__all__ = ["main"]

_SIZE = (110, 40)
_QUIET_SECONDS = 0.35
_TURN = 1_000
_PLANS = 15
_PER_SECOND = 1_000
_CHANGES: tuple[tuple[Callable[[Client, str], object], PlanStatus], ...] = (
    (lambda client, plan_id: client.plans.pause(plan_id), PlanStatus.PAUSED),
    (lambda client, plan_id: client.plans.resume(plan_id), PlanStatus.QUEUED),
)


class _TimedApp(TerminalApp):
    """The app, with the time of the first paint since a condition became true."""

    shows: Callable[[], bool] = staticmethod(lambda: False)
    painted: float | None = None

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        super()._display(screen, renderable)
        if renderable is not None and self.painted is None and self.shows():
            self.painted = time.perf_counter()


async def _timed(
    pilot: Pilot[None], app: _TimedApp, act: Callable[[], object], shows: Callable[[], bool]
) -> float:
    """Return the seconds from the end of the call to the first paint with its effect."""

    def call() -> float:
        act()
        return time.perf_counter()

    app.painted, app.shows = None, shows
    committed = await asyncio.to_thread(call)
    await until(pilot, lambda: app.painted is not None)
    return max(0.0, (app.painted or 0.0) - committed)


async def _latencies(client: Client, samples: int, pause: float) -> list[float]:
    arguments = {"pattern": "colour", "replacement": "color"}
    app, found = _TimedApp(client, ConversationRequest(repository=".")), list[float]()
    async with app.run_test(size=_SIZE) as pilot:
        request = PlanRequest(action="builtin/replace", arguments=arguments)
        plan_id = (await asyncio.to_thread(client.plans.create, request)).id
        await until(pilot, lambda: plan_id in app.home.board.plans)
        for number in range(samples):
            act, wanted = _CHANGES[number % 2]
            await pilot.pause(pause)
            found.append(
                await _timed(
                    pilot,
                    app,
                    lambda act=act: act(client, plan_id),
                    lambda wanted=wanted: app.home.board.plans[plan_id].status is wanted,
                )
            )
    return found


def _engine(samples: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"HOME": place, "XDG_DATA_HOME": f"{place}/data", "XDG_CONFIG_HOME": f"{place}/config"}
        root = new_repository(Path(place) / "shop")
        os.chdir(root)
        with connect(directory=root) as client:
            assert isinstance(client, LocalClient)
            for name, pause in (("at rest", _QUIET_SECONDS), ("back to back", 0.0)):
                waiting = LocalClient(client.access.container, in_front=True)  # no worker runs its plans
                found = asyncio.run(_latencies(waiting, samples, pause))
                print(f"event to screen, {name}: {_figures(found)}", flush=True)
        os.chdir("/")


class _PaintedApp(TerminalApp):
    """The app, with the number of the latest event and of the latest piece at each paint."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, ConversationRequest(repository="."), session_id="S")
        self.paints: list[tuple[float, int, int]] = []

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        super()._display(screen, renderable)
        if renderable is None or not self.home.is_mounted:
            return
        events = [int(one.goal.rpartition(" ")[2]) for one in self.home.board.plans.values()]
        blocks = self.home.query(TurnBlock)
        words = blocks.last().answer[-40:].split() if blocks else []
        self.paints.append((time.perf_counter(), max(events, default=0), int(words[-1]) if words else 0))


async def _rate(seconds: float) -> None:
    plans = ShownPlans(*(plan(id=f"plan{number}", goal="event 0") for number in range(_PLANS)))
    log, sessions = FedEvents(), FedSessions(example(TurnView, state=TurnState.RUNNING, answer=""))
    app, put, total = _PaintedApp(client_of(plans, log, sessions)), [0.0], int(seconds * _PER_SECOND)
    async with app.run_test(size=_SIZE) as pilot:
        await until(pilot, lambda: app.home.conversation.running and len(app.home.board.plans) == _PLANS)
        began, spent = time.perf_counter(), time.process_time()
        while len(put) <= total:
            due = min(total, int((time.perf_counter() - began) * _PER_SECOND))
            for number in range(len(put), due + 1):
                name = f"plan{number % _PLANS}"
                plans.shown[name] = replace(plans.shown[name], goal=f"event {number}")
                log.queue.put(event(number, name))
                sessions.queue.put(f"{number} " if number % 40 else f"{number}\n\n")
                put.append(time.perf_counter())
            await asyncio.sleep(0.001)
        await until(pilot, lambda: app.paints[-1][1:] == (total, total))
        spent = time.process_time() - spent
        share = spent / (time.perf_counter() - began)
    for place, name in ((1, "event of a plan"), (2, "piece of an answer")):
        found, shown = list[float](), 0
        for paint in app.paints:
            found += [paint[0] - put[number] for number in range(shown + 1, paint[place] + 1)]
            shown = max(shown, paint[place])
        print(f"{_PER_SECOND:,} a second, {name} to screen: {_figures(found)}", flush=True)
    each = spent / len(app.paints) * 1000
    print(f"  {share:.2f} of a core, {len(app.paints)} paints, {each:.0f} ms of CPU for each", flush=True)


def _figures(found: list[float]) -> str:
    ordered = sorted(found)
    p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms"


def _resident() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def _stream(events: int, most_seconds: float) -> None:
    plans = ShownPlans(*(plan(id=f"plan{number}", goal="begin") for number in range(_PLANS)))
    log, sessions = FedEvents(), FedSessions()
    app = TerminalApp(client_of(plans, log, sessions), ConversationRequest(repository="."))
    async with app.run_test(size=_SIZE) as pilot:
        await until(pilot, lambda: len(app.home.board.plans) == _PLANS)
        began = time.perf_counter()
        print(f"memory of the app: {_resident():.0f} MiB at the start", flush=True)
        pane = app.home.conversation
        for fed in range(0, events, _TURN):
            pane.send(f"question {fed}")
            for number in range(fed + 1, fed + _TURN + 1):
                name = f"plan{number % _PLANS}"
                plans.shown[name] = replace(plans.shown[name], goal=f"event {number}")
                log.queue.put(event(number, name))
                sessions.queue.put(f"word{number} " if number % 40 else f"`code{number}`.\n\n")
            sessions.queue.put(None)
            await until(pilot, lambda: not pane.running)
            seconds = time.perf_counter() - began
            if seconds > most_seconds or (fed + _TURN) % max(_TURN, events // 5) == 0:
                print(f"  {_resident():.0f} MiB after {fed + _TURN:,} events in {seconds:.0f} s", flush=True)
            if seconds > most_seconds:
                return


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.terminal_app", description=__doc__)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--rate-seconds", type=float, default=20.0)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args(arguments)
    if chosen.samples:
        _engine(chosen.samples)
    if chosen.rate_seconds:
        asyncio.run(_rate(chosen.rate_seconds))
    if chosen.events:
        asyncio.run(_stream(chosen.events, chosen.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
