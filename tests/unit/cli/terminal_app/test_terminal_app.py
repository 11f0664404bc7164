"""The terminal app: conversation, board, events and keys."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList
from textual.widgets._toast import Toast

from cleveragents.api.client import Client, LocalClient
from cleveragents.api.conversations.client import ConversationRequest
from cleveragents.api.events import EventPage, EventView
from cleveragents.api.plans.request import PlanRequest
from cleveragents.cli.terminal_app import board
from cleveragents.cli.terminal_app.app import Home, TerminalApp
from cleveragents.cli.terminal_app.board import GROUPS
from cleveragents.cli.terminal_app.information import Information
from cleveragents.cli.terminal_app.messages import PlanChanged
from cleveragents.cli.terminal_app.start import model_notice
from cleveragents.cli.terminal_app.turn_block import TurnBlock
from cleveragents.config.settings import ModelSettings
from cleveragents.conversations.model import TurnState
from cleveragents.core.errors import ServerUnreachable
from cleveragents.plans.model.status import PlanStatus
from tests.terminal_bench import drive, shop_client, text_of, until
from tests.terminal_views import FedEvents, FedSessions, ShownPlans, client_of, plan

PAGE_GROUPS = Path(board.__file__).parents[2] / "server/web/static/js/groups.js"
MOMENT = datetime(2026, 11, 15, 12, tzinfo=UTC)
SCRIPTED = "scripted/{}/script.yaml"
RULES = [
    {"when": {"user": "person:\\s+hang"}, "reply": {"text": "one two", "fault": {"hang": True}}},
    {
        "when": {"user": "person:\\s+colour"},
        "reply": {"text": "In `src/paint.py:1`.\x1b[2J [red]no[/red] List<String>"},
    },
    {"reply": {"text": "Hello."}},
]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with shop_client(tmp_path, monkeypatch, RULES) as made:
        yield made


async def type_in(pilot: Pilot[None], app: TerminalApp, text: str) -> None:
    app.home.conversation.prompt.area.insert(text)
    await pilot.press("enter")


def test_an_answer_is_streamed_and_its_escapes_are_inert(client: Client) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        await type_in(pilot, app, "colour")
        pane = app.home.conversation
        await until(pilot, lambda: bool(app.home.query(TurnBlock)) and not pane.running)
        (block,) = app.home.query(TurnBlock)
        assert block.answer.strip() == "In `src/paint.py:1`.\\x1b[2J [red]no[/red] List<String>"
        assert "\x1b[2J" not in app.export_screenshot()
        assert pane.session is not None
        assert client.conversations.get(pane.session.id).turns == 1

    drive(client, play)


def test_a_missing_model_is_named_at_the_start(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert model_notice(client, ModelSettings(default=SCRIPTED.format(Path.cwd().parent))) == ""
    assert "key of the default model openai/gpt-4.1 is missing" in model_notice(
        client, ModelSettings(default="openai/gpt-4.1")
    )
    assert "agents init" in model_notice(client, ModelSettings(default="nobody/nothing"))
    notice = model_notice(client, ModelSettings())

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        shown = text_of(app.home)
        assert "No model is configured" in shown
        assert "agents init" in shown
        await type_in(pilot, app, "/new")
        await until(pilot, lambda: "No model" not in text_of(app.home))

    drive(client, play, notice=notice)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_notices_do_not_hide_the_prompt(client: Client, width: int) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        app.notify("It failed for a reason that takes more than one line of a narrow terminal. " * 2)
        app.notify("Another notice.", severity="error")
        await until(pilot, lambda: len(app.screen.query(Toast)) == 2)
        await until(pilot, lambda: all(toast.region.area for toast in app.screen.query(Toast)))
        prompt = app.home.conversation.prompt.region
        assert prompt.area
        assert [toast.region.overlaps(prompt) for toast in app.screen.query(Toast)] == [False, False]

    drive(client, play, size=(width, 24), notifications=True)


def test_esc_stops_the_answer_and_the_next_message_redirects_it(client: Client) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        await type_in(pilot, app, "hang")
        await until(pilot, lambda: bool(app.home.query(TurnBlock)))
        await type_in(pilot, app, "meanwhile")
        await until(pilot, lambda: bool(app._notifications))
        await until(pilot, lambda: pane.prompt.text == "meanwhile")  # a text that cannot be sent yet stays
        await pilot.press("escape")
        await until(pilot, lambda: not pane.running)
        await pilot.press("enter")
        await until(pilot, lambda: len(app.home.query(TurnBlock)) == 2 and not pane.running)
        assert pane.session is not None
        states = [turn.state for turn in client.conversations.turns(pane.session.id).items]
        assert states == [TurnState.STOPPED, TurnState.ANSWERED]

    drive(client, play)


def test_a_text_that_cannot_be_sent_returns_to_the_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        await type_in(pilot, app, "hello")
        await until(pilot, lambda: bool(app._notifications) and app.home.conversation.prompt.text == "hello")
        (notice,) = app._notifications
        assert "no default model" in notice.message
        assert "agents init" in notice.message
        await type_in(pilot, app, "")  # the prompt still works
        await pilot.pause()

    with shop_client(tmp_path, monkeypatch) as made:  # no model is set up
        drive(made, play)


def test_the_prompt_completes_files_and_commands_and_recalls_texts(client: Client) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        prompt = app.home.conversation.prompt
        await until(pilot, lambda: bool(prompt.files))
        prompt.area.insert("see @pai")
        await until(pilot, lambda: prompt.area.completing)
        await pilot.press("tab")
        await until(pilot, lambda: prompt.text == "see @src/paint.py ")
        prompt.area.load_text("")
        prompt.area.insert("/hel")
        await until(pilot, lambda: prompt.area.completing)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Information))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.home)
        await type_in(pilot, app, "/nothing")
        await until(pilot, lambda: any("/nothing" in one.message for one in app._notifications))
        await until(pilot, lambda: prompt.text == "/nothing")
        prompt.area.load_text("draft")
        await pilot.press("up")
        await until(pilot, lambda: prompt.text == "/nothing")
        await pilot.press("down")
        await until(pilot, lambda: prompt.text == "draft")

    drive(client, play, size=(60, 24))


def test_the_ages_of_plans_are_updated_without_events(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "_AGE_SECONDS", 0.05)

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        words = {"pattern": "colour", "replacement": "color"}
        plan = client.plans.create(PlanRequest(action="builtin/replace", arguments=words))
        shown = app.home.board
        await until(pilot, lambda: plan.id in shown.plans and shown.plans[plan.id].status is PlanStatus.READY)
        shown.show([shown.plans[plan.id]], shown.plans[plan.id].updated + timedelta(hours=2))
        assert "2 h ago" in str(shown.options[1].prompt)
        await until(pilot, lambda: "2 h ago" not in str(shown.options[1].prompt))

    drive(client, play)


def test_the_board_shows_a_live_plan_and_follows_it(client: Client) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        words = {"pattern": "colour", "replacement": "color"}
        plan = client.plans.create(PlanRequest(action="builtin/replace", arguments=words))
        await until(pilot, lambda: app.home.board.plans.get(plan.id) is not None)
        await until(pilot, lambda: app.home.board.plans[plan.id].status is PlanStatus.READY)
        prompts = [str(option.prompt) for option in app.home.board.options]
        assert prompts[0] == "Ready for review · 1"
        assert "colour" in prompts[1]

    drive(client, play)


def test_a_decided_plan_leaves_the_highlight_to_the_next_one() -> None:
    names = ("one", "two", "three")  # in the order of the board
    waiting = [plan(id=name, status="waiting", needs="approval", state="waiting") for name in names]
    waiting = [replace(one, updated=MOMENT - timedelta(hours=age)) for age, one in enumerate(waiting)]
    plans = ShownPlans(*waiting)

    async def run() -> None:
        app = TerminalApp(client_of(plans, FedEvents(), FedSessions()), ConversationRequest())
        async with app.run_test() as pilot:
            shown = app.home.board
            await until(pilot, lambda: len(shown.plans) == 3)
            shown.highlighted = 2
            assert shown.plan_id == "two"
            for decided, highlighted in (("three", "two"), ("two", "one"), ("one", "one")):
                plans.shown[decided] = replace(plans.shown[decided], status=PlanStatus.RUNNING, needs=None)
                app.reload_board()
                await until(pilot, lambda decided=decided: shown.plans[decided].needs is None)
                assert shown.plan_id == highlighted

    asyncio.run(run())


def test_the_groups_are_those_of_the_page() -> None:
    page = PAGE_GROUPS.read_text(encoding="utf-8")
    assert dict(re.findall(r'name: "(\w+)", label: "([^"]+)"', page)) == GROUPS
    (table,) = re.findall(r"GROUP_OF = \{(.*?)\}", page, re.DOTALL)
    on_page = {PlanStatus(status): group for status, group in re.findall(r'(\w+): "(\w+)"', table)}
    assert on_page == board._GROUP_OF


class BurstOfEvents:
    """A log that fails once, then has 1,000 events at once, then no more."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._failed = False
        self._sleep = sleep

    def list(self, **_: object) -> EventPage:
        return EventPage(items=(), next=None, warning=None)

    def follow(self, *, after: int | None = None, **_: object) -> Iterator[EventView]:
        if not self._failed:
            self._failed = True
            raise ServerUnreachable("https://agents.example", "connection refused")
        for number in range(1, 1001):
            facts = {"plan_id": f"plan{number % 7}"}
            yield EventView(
                position=number, time=None, type="plan.moved", subject="x", facts=facts, event_id="", hash=""
            )
        while True:
            self._sleep(0.05)


def test_a_burst_of_events_causes_few_repaints(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(client, LocalClient)
    bursting = LocalClient(client.access.container)
    monkeypatch.setattr(LocalClient, "events", property(lambda self: log))
    log = BurstOfEvents(bursting._sleep)
    told: list[str] = []

    def hear(screen: Home, event: PlanChanged) -> None:
        told.append(event.plan_id)

    monkeypatch.setattr(Home, "on_plan_changed", hear, raising=False)

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        await until(pilot, lambda: {f"plan{number}" for number in range(7)} <= set(told))
        assert len(told) < 500  # 1,000 without batches
        assert app.board_reads < 50

    drive(bursting, play)


def test_ctrl_c_quits_when_pressed_twice(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cleveragents.cli.terminal_app.app._TWICE_SECONDS", 600.0)

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        await pilot.press("ctrl+c")
        assert app.is_running
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running or app._exit)

    drive(client, play)


def test_the_board_is_above_the_conversation_in_a_narrow_terminal(client: Client) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        await until(pilot, lambda: pane.region.width == 60)
        assert pane.region.y >= app.home.query_one(OptionList).region.bottom
        await pilot.resize_terminal(100, 30)
        await until(pilot, lambda: pane.region.x > 0)

    drive(client, play, size=(60, 24))


def test_an_event_may_arrive_while_the_app_closes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual runs callbacks until the message loop ends, and the screens are gone before that."""
    closed = TerminalApp._close_all
    late: list[str] = []

    async def with_an_event(app: TerminalApp) -> None:
        await closed(app)
        app._events.put(("a plan",))
        await app._events.flush()
        late.append("delivered")

    async def play(_: Pilot[None], __: TerminalApp) -> None:
        return

    monkeypatch.setattr(TerminalApp, "_close_all", with_an_event)
    drive(client, play)
    assert late == ["delivered"]
