"""Widgets that left the screen of the terminal app take no memory."""

from __future__ import annotations

import asyncio
import gc

from textual._styles_cache import StylesCache
from textual.app import ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Static
from textual.widgets._footer import FooterKey

from cleveragents.api.conversations.client import ConversationRequest, TurnView
from cleveragents.cli.terminal_app.app import TerminalApp
from cleveragents.cli.terminal_app.turn_block import TurnBlock
from tests.terminal_bench import text_of, until
from tests.terminal_views import FedEvents, FedSessions, ShownPlans, client_of, example, plan

TIMES = 4


class Above(Screen[None]):
    """A screen above the first one."""

    def compose(self) -> ComposeResult:
        yield Static("above")


def line_caches() -> int:
    """Return how many caches of painted lines exist. Each widget has one."""
    gc.collect()
    return sum(isinstance(one, StylesCache) for one in gc.get_objects())


def app_with(*turns: TurnView) -> TerminalApp:
    plans = ShownPlans(plan(id="plan1"))
    client = client_of(plans, FedEvents(), FedSessions(*turns))
    return TerminalApp(client, ConversationRequest(repository="."))


async def paint_session(pilot: Pilot[None], app: TerminalApp, answers: list[str]) -> None:
    """Open the session and paint it, then leave it."""
    app.home.conversation.open("S")
    await until(pilot, lambda: [block.answer for block in app.home.query(TurnBlock)] == answers)
    await until(pilot, lambda: answers[-1] in text_of(app.screen))
    await app.home.conversation.start_new()
    await pilot.pause()


def test_turns_of_a_session_that_was_left_are_freed() -> None:
    answers = [f"answer {number}" for number in range(1, 6)]
    app = app_with(*(example(TurnView, answer=answer) for answer in answers))

    async def run() -> None:
        async with app.run_test(size=(110, 60)) as pilot:
            await paint_session(pilot, app, answers)
            before = line_caches()
            for _ in range(TIMES):
                await paint_session(pilot, app, answers)
            assert line_caches() - before < len(answers) * TIMES, "each session has more widgets than turns"

    asyncio.run(run())


def test_turns_that_are_too_old_for_the_screen_are_freed() -> None:
    answers = [f"answer {number}" for number in range(1, 31)]
    sessions = FedSessions(*(example(TurnView, answer=answer) for answer in answers))
    app = TerminalApp(client_of(ShownPlans(), FedEvents(), sessions), ConversationRequest())

    async def run() -> None:
        async with app.run_test(size=(110, 200)) as pilot:
            pane = app.home.conversation
            pane.open("S")
            await until(pilot, lambda: len(app.home.query(TurnBlock)) == len(answers))
            await until(pilot, lambda: all(answer in text_of(app.screen) for answer in answers))
            before = line_caches()
            for number in range(31, 31 + TIMES):
                pane.send(f"question {number}")
                sessions.queue.put(f"answer {number}")
                sessions.queue.put(None)
                await until(pilot, lambda: not pane.running)
                await until(pilot, lambda number=number: f"answer {number}" in text_of(app.screen))
            assert line_caches() - before < 2 * TIMES, "a turn has five widgets"

    asyncio.run(run())


def test_screens_that_were_closed_are_freed() -> None:
    app = app_with()

    async def look(pilot: Pilot[None]) -> None:
        await app.push_screen(Above())
        await until(pilot, lambda: "above" in text_of(app.screen))
        app.pop_screen()
        await until(pilot, lambda: app.screen is app.home)
        await pilot.pause()

    async def run() -> None:
        async with app.run_test() as pilot:
            await until(pilot, lambda: bool(app.home.board.plans))
            await look(pilot)
            before = line_caches()
            for _ in range(TIMES):
                await look(pilot)
            assert line_caches() - before < TIMES

    asyncio.run(run())


def test_former_keys_of_the_footer_are_freed() -> None:
    app = app_with()

    def keys() -> int:
        gc.collect()
        return sum(isinstance(one, FooterKey) for one in gc.get_objects())

    async def run() -> None:
        async with app.run_test() as pilot:
            await until(pilot, lambda: bool(app.home.query(FooterKey)))
            for _ in range(TIMES):
                await pilot.press("f2")
                await until(pilot, lambda: "Open plan" in text_of(app.screen))
                await pilot.press("f2")
                await until(pilot, lambda: "Open plan" not in text_of(app.screen))
            await pilot.pause()
            assert keys() < 5 * TIMES, "a key press creates nine"

    asyncio.run(run())
