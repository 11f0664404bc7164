"""The terminal app at 1,000 events and 1,000 pieces of an answer per second: few repaints, nothing lost."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from rich.console import RenderableType
from textual._compositor import LayoutUpdate
from textual.pilot import Pilot
from textual.screen import Screen

from cleveragents.api.conversations.client import ConversationRequest, TurnView
from cleveragents.cli.terminal_app.app import TerminalApp
from cleveragents.cli.terminal_app.turn_block import TurnBlock
from cleveragents.conversations.model import TurnState
from tests.terminal_bench import until
from tests.terminal_views import FedEvents, FedSessions, ShownPlans, client_of, event, example, plan

EVENTS, PER_SECOND, PLANS = 2_000, 1_000, 5


class CountingApp(TerminalApp):
    """The app, with the number of its repaints, and of those that draw the whole screen."""

    paints = whole = 0

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if renderable is not None:
            self.paints += 1
            self.whole += isinstance(renderable, LayoutUpdate)
        super()._display(screen, renderable)


def piece(number: int) -> str:
    return f"w{number} " if number % 50 else f"w{number}\n\n"


async def feed(pilot: Pilot[None], plans: ShownPlans, events: FedEvents, sessions: FedSessions) -> None:
    """Feed events and pieces of the answer as they become due, and change a plan with each."""
    began, fed = time.monotonic(), 0
    while fed < EVENTS:
        due = min(EVENTS, int((time.monotonic() - began) * PER_SECOND))
        for number in range(fed + 1, due + 1):
            name = f"plan{number % PLANS}"
            plans.shown[name] = replace(plans.shown[name], goal=f"event {number}")
            events.queue.put(event(number, name))
            sessions.queue.put(piece(number))
        fed = due
        await pilot.pause()


def test_a_thousand_events_a_second_do_not_flicker() -> None:
    plans = ShownPlans(*(plan(id=f"plan{number}", goal="begin") for number in range(PLANS)))
    events, sessions = FedEvents(), FedSessions(example(TurnView, state=TurnState.RUNNING, answer=""))

    async def run() -> None:
        client = client_of(plans, events, sessions)
        app = CountingApp(client, ConversationRequest(repository="."), session_id="S")
        async with app.run_test(size=(110, 40)) as pilot:
            await until(pilot, lambda: app.home.conversation.running and len(app.home.board.plans) == PLANS)
            painted = -1
            while painted != (painted := app.paints):  # the first full paint may still be pending
                await pilot.pause(0.1)
            app.paints = app.whole = plans.reads = 0
            began = time.monotonic()
            await feed(pilot, plans, events, sessions)
            sessions.queue.put(None)
            await until(pilot, lambda: not app.home.conversation.running)
            last = {f"event {number}" for number in range(EVENTS - PLANS + 1, EVENTS + 1)}
            await until(pilot, lambda: {one.goal for one in app.home.board.plans.values()} == last)
            seconds = time.monotonic() - began
            (block,) = app.home.query(TurnBlock)
            assert block.answer == "".join(map(piece, range(1, EVENTS + 1)))
            assert app.paints < 35 * seconds + 10, "20 updates of the answer and 4 of the board per second"
            assert app.whole == 0, "only the parts that changed are drawn"
            assert plans.reads < 2 * (4 * seconds + 3)

    asyncio.run(run(), debug=False)  # the debug mode of the other tests costs more than the app


def test_old_turns_leave_the_screen() -> None:
    sessions = FedSessions()

    async def run() -> None:
        app = TerminalApp(client_of(ShownPlans(), FedEvents(), sessions), ConversationRequest())
        async with app.run_test() as pilot:
            for number in range(1, 34):
                app.home.conversation.send(f"question {number}")
                sessions.queue.put(f"answer {number}")
                sessions.queue.put(None)
                await until(pilot, lambda: not app.home.conversation.running)
            answers = [block.answer for block in app.home.query(TurnBlock)]
            assert answers == [f"answer {number}" for number in range(4, 34)]

    asyncio.run(run())
