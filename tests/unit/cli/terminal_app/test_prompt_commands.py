"""The commands of the prompt of the terminal app, and a session line by line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from io import FileIO, TextIOWrapper
from pathlib import Path

import pytest
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import Input, Static

from cleveragents.api.client import Client, LocalClient
from cleveragents.api.conversations.client import ConversationRequest, ConversationView
from cleveragents.api.plans.detail_views import CorrectionNode
from cleveragents.api.plans.request import Limits, PlanRequest
from cleveragents.cli.terminal_app.app import TerminalApp
from cleveragents.cli.terminal_app.dialogs import ActionDialog, DialogChoice, DialogField, DialogQuestion
from cleveragents.cli.terminal_app.information import Information
from cleveragents.cli.terminal_app.plan_screen import PlanScreen
from cleveragents.cli.terminal_app.start import repository_files
from cleveragents.cli.terminal_app.turn_block import TurnBlock
from cleveragents.models.model.attachment import MOST_ATTACHED_BYTES, MOST_ATTACHMENTS
from cleveragents.plans.model.status import PlanStatus
from tests.attached_files import PDF, PNG
from tests.cli_bench import command_line, paint_shop
from tests.terminal_bench import drive, shop_client, text_of, until
from tests.terminal_views import FedEvents, FedSessions, ShownPlans, client_of

RULES = [{"when": {"attached": "image/png"}, "reply": {"text": "A shed."}}, {"reply": {"text": "Hello."}}]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with shop_client(tmp_path, monkeypatch, RULES) as made:
        assert isinstance(made, LocalClient)
        # As in the app, but without processes: no worker runs the plans.
        yield LocalClient(made.access.container, in_front=True)


async def run(pilot: Pilot[None], app: TerminalApp, text: str) -> None:
    app.home.conversation.prompt.area.load_text(text)
    app.home.conversation.prompt.area.focus()
    await pilot.press("escape", "enter")


async def shows(pilot: Pilot[None], app: TerminalApp, text: str, wanted: str) -> None:
    """Run a command that opens a dialog, expect a text in it, and close it."""
    await run(pilot, app, text)
    await until(pilot, lambda: isinstance(app.screen, Information) and bool(app.screen.query(Static)))
    assert wanted in str(app.screen.query_one(Static).render())
    await pilot.press("escape")
    await until(pilot, lambda: app.screen is app.home)


async def says(pilot: Pilot[None], app: TerminalApp, text: str, wanted: str) -> None:
    """Run a command that shows a notice."""
    app.clear_notifications()
    await run(pilot, app, text)
    await until(pilot, lambda: any(wanted in one.message for one in app._notifications))


def test_commands_before_the_first_message(client: Client) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        await until(pilot, lambda: bool(pane.prompt.files))
        await shows(pilot, app, "/sessions", "No sessions yet.")
        await shows(pilot, app, "/model", "/model NAME")
        await shows(pilot, app, "/context colour", "src/paint.py")
        for text, wanted in (
            ("/budget", "spent nothing"),
            ("/compact", "Nothing to summarise."),
            ("/fork", "no session"),
            ("/rename Paint", "no session"),
            ("/init", "agents init"),
            ("/plan", "/plan GOAL"),
            ("/context", "/context QUESTION"),
            ("/apply", "No plans have a result to apply."),
            ("/undo", "No plans can be undone."),
            ("/open nothing", "nothing"),
            ("!", "Name a command"),
        ):
            await says(pilot, app, text, wanted)
        await run(pilot, app, "/plans")
        await until(pilot, lambda: app.home.board.has_focus)
        await pilot.press("f2")
        await until(pilot, lambda: pane.prompt.area.has_focus)

    drive(client, play)


def test_commands_of_a_session(client: Client) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        await run(pilot, app, "hello")
        await until(pilot, lambda: bool(app.home.query(TurnBlock)) and not pane.running)
        assert pane.session is not None
        first = pane.session.id
        await shows(pilot, app, "/budget", "model calls  1")
        await shows(pilot, app, "/sessions", first)
        await says(pilot, app, "/compact", "Nothing to summarise.")
        await says(pilot, app, "/rename", "named hello. Name the new title: /rename TITLE")
        await says(pilot, app, "/rename The \x1b[2Jshed", "This session is named The \\x1b[2Jshed.")
        await until(pilot, lambda: pane.session is not None and "shed" in pane.session.title)
        await shows(pilot, app, "/sessions", "The \\x1b[2Jshed")
        await run(pilot, app, "/fork")
        await until(pilot, lambda: pane.session is not None and pane.session.id != first)
        await run(pilot, app, f"/sessions {first}")
        await until(pilot, lambda: pane.session is not None and pane.session.id == first)
        await until(pilot, lambda: [one.answer.strip() for one in app.home.query(TurnBlock)] == ["Hello."])
        await says(pilot, app, "/model scripted/other", "new session with scripted/other")
        await until(pilot, lambda: pane.session is None)
        assert pane.request.model == "scripted/other"

    drive(client, play)


def test_a_spent_budget_is_raised_in_the_prompt(client: Client) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        pane.request = replace(pane.request, limits=Limits(steps=1))
        await says(pilot, app, "/budget 2", "Send a message first")
        assert pane.prompt.text == "/budget 2", "nothing typed is lost"
        for number in (1, 2):
            await run(pilot, app, "hello")
            await until(pilot, lambda n=number: len(app.home.query(TurnBlock)) == n and not pane.running)
        assert "Raise the limit: /budget 2 steps" in text_of(app.screen)
        await shows(pilot, app, "/budget", "model calls  1 of 1")
        await says(pilot, app, "/budget two", "is not a valid")
        await until(pilot, lambda: pane.prompt.text == "/budget two")
        await says(pilot, app, "/budget 2 steps", "The budget is raised: model calls 1 of 2")
        await run(pilot, app, "")
        await until(pilot, lambda: len(app.home.query(TurnBlock)) == 3 and not pane.running)
        assert [one.answer.strip() for one in app.home.query(TurnBlock)] == ["Hello.", "", "Hello."]

    drive(client, play)


class SmallModel(FedSessions):
    """A session with a model that calls no tools."""

    def get(self, session_id: str) -> ConversationView:
        return replace(super().get(session_id), calls_tools=False)


@pytest.mark.parametrize(("kind", "hints"), [(SmallModel, 1), (FedSessions, 0)])
def test_a_session_says_once_that_its_model_starts_no_plans(kind: type[FedSessions], hints: int) -> None:
    sessions = kind()

    def said(app: TerminalApp) -> list[str]:
        return [str(one.render()) for one in app.home.query(".hint").results(Static)]

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        for number in (1, 2):
            await run(pilot, app, "Paint the shed.")
            sessions.queue.put("It is blue.")
            sessions.queue.put(None)
            await until(pilot, lambda n=number: len(app.home.query(TurnBlock)) == n and not pane.running)
            assert ["/plan GOAL starts a plan" in one for one in said(app)] == [True] * hints
        await run(pilot, app, "/new")
        await until(pilot, lambda: pane.session is None and not app.home.query(TurnBlock))
        await run(pilot, app, "/sessions S")
        await until(pilot, lambda: len(app.home.query(TurnBlock)) == 2)
        assert len(said(app)) == hints

    drive(client_of(ShownPlans(), FedEvents(), sessions), play)


def test_a_picture_goes_with_the_next_message(client: Client, tmp_path: Path) -> None:
    (tmp_path / "shed.png").write_bytes(PNG)
    (tmp_path / "paper.pdf").write_bytes(PDF)
    (tmp_path / "large.png").write_bytes(PNG + bytes(MOST_ATTACHED_BYTES - len(PNG)))

    def answers(app: TerminalApp) -> list[str]:
        return [one.answer.strip() for one in app.home.query(TurnBlock)]

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        talk = app.home.conversation
        await says(pilot, app, "/attach nothing.png", "cannot be read")
        await says(pilot, app, f"/attach {tmp_path / 'paper.pdf'}", "Your next message has: paper.pdf")
        await says(pilot, app, "What is this?", "takes no application/pdf files")
        await until(pilot, lambda: not talk.running and talk.prompt.area.text == "What is this?")
        await says(pilot, app, "/attach", "no attachments")
        await says(pilot, app, f"/attach {tmp_path / 'shed.png'}", "Your next message has: shed.png")
        await says(pilot, app, f"/attach {tmp_path / 'large.png'}", "at most 10,000,000 bytes together")
        for number in range(2, MOST_ATTACHMENTS + 1):
            shown = ", ".join(["shed.png"] * number)
            await says(pilot, app, f"/attach {tmp_path / 'shed.png'}", f"Your next message has: {shown}")
        await says(pilot, app, f"/attach {tmp_path / 'shed.png'}", "a question has at most 5 attachments")
        await run(pilot, app, "What is this?")
        await until(pilot, lambda: answers(app) == ["A shed."] and not talk.running)
        await run(pilot, app, "hello")
        await until(pilot, lambda: answers(app) == ["A shed.", "Hello."] and not talk.running)

    drive(client, play)


def test_a_goal_and_a_shell_command_become_plans_for_review(client: Client) -> None:
    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        await run(pilot, app, "!echo 'a b' | tee c")
        await until(pilot, lambda: isinstance(app.screen, PlanScreen))
        plan = client.plans.list(limit=1).items[0]
        assert (plan.action, plan.request["apply"]) == ("builtin/command", "review")
        assert plan.request["arguments"]["argv"] == ["sh", "-c", "echo 'a b' | tee c"]
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.home)
        await run(pilot, app, "/plan Paint it red")
        await until(pilot, lambda: len(app.home.board.plans) == 2)
        plan = client.plans.list(limit=1).items[0]
        assert (plan.action, plan.request["apply"]) == ("builtin/goal", "review")

    drive(client, play)


def test_commands_use_the_repository_of_the_opened_session(client: Client, tmp_path: Path) -> None:
    other = paint_shop(tmp_path / "other")
    (other / "only-here.txt").write_text("colour\n")
    session = client.conversations.create(ConversationRequest(repository=other))

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        pane.open(session.id)
        await until(pilot, lambda: pane.session is not None)
        await shows(pilot, app, "/context colour only here", "only-here.txt")
        await run(pilot, app, "/plan Paint it red")
        await until(pilot, lambda: len(client.plans.list().items) == 1 and not pane.running)
        await until(pilot, lambda: pane.session is not None and len(pane.session.plans) == 1)
        await run(pilot, app, "!true")
        await until(pilot, lambda: isinstance(app.screen, PlanScreen))
        assert [plan.resource for plan in client.plans.list().items] == [str(other)] * 2

    drive(client, play)


def test_esc_pauses_the_highlighted_plan(client: Client) -> None:
    plan = client.plans.create(
        PlanRequest(action="builtin/replace", arguments={"pattern": "colour", "replacement": "color"})
    )

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        await until(pilot, lambda: plan.id in app.home.board.plans)
        await pilot.press("escape")
        await until(pilot, lambda: any("Nothing runs" in one.message for one in app._notifications))
        app.home.board.focus()
        await pilot.press("escape")
        await until(pilot, lambda: app.home.board.plans[plan.id].status is PlanStatus.PAUSED)
        assert app.home.conversation.prompt.area.has_focus
        await until(pilot, lambda: any("Open it to resume" in one.message for one in app._notifications))

    drive(client, play)


def corrections(client: Client, plan_id: str) -> list[str]:
    nodes = client.plans.decisions(plan_id).items
    return [one.guidance for one in nodes if isinstance(one, CorrectionNode)]


def test_a_message_after_esc_corrects_a_plan_that_the_session_did_not_start(client: Client) -> None:
    plan = client.plans.create(PlanRequest(goal="paint the shed"))

    async def send(pilot: Pilot[None], app: TerminalApp, text: str) -> None:
        app.home.conversation.prompt.area.load_text(text)
        await pilot.press("enter")

    async def pause(pilot: Pilot[None], app: TerminalApp) -> None:
        app.clear_notifications()
        app.home.board.focus()
        await pilot.press("escape")
        await until(pilot, lambda: "goes to the agent of plan" in text_of(app.screen).replace("\n", " "))

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        await until(pilot, lambda: plan.id in app.home.board.plans)
        await pause(pilot, app)
        assert client.plans.get(plan.id).status is PlanStatus.PAUSED
        await send(pilot, app, "use red")
        await until(pilot, lambda: corrections(client, plan.id) == ["use red"])
        assert pane.session is None, "the assistant is not asked"
        await until(pilot, lambda: app.home.board.plans[plan.id].status is PlanStatus.QUEUED)
        await pause(pilot, app)
        client.plans.cancel(plan.id)
        await send(pilot, app, "use blue")
        await until(pilot, lambda: any(one.severity == "error" for one in app._notifications))
        await until(pilot, lambda: pane.prompt.text == "use blue")
        await pilot.press("escape")
        await until(pilot, lambda: any("to the assistant" in one.message for one in app._notifications))
        await pilot.press("enter")
        await until(pilot, lambda: [one.answer.strip() for one in app.home.query(TurnBlock)] == ["Hello."])
        assert corrections(client, plan.id) == ["use red"]

    drive(client, play)


def test_a_paste_cannot_control_the_terminal(client: Client) -> None:
    hostile, inert = "a\x1b[2J\tb\x9b\u202e\r\nc", "a\\x1b[2J\tb\\x9b\\u202e"

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        area = app.home.conversation.prompt.area
        app.post_message(Paste(hostile))
        await until(pilot, lambda: bool(area.text))
        area.insert(f"\n{hostile}")
        await pilot.pause()
        assert area.text == f"{inert}\nc\n{inert}\nc"
        assert not any("\x1b" in segment.text for segment in area.render_line(0))
        await pilot.press("ctrl+p")  # the palette of Textual
        await until(pilot, lambda: isinstance(app.focused, Input))
        search = app.screen.query_one(Input)
        app.post_message(Paste(hostile))
        await until(pilot, lambda: bool(search.value))
        assert (search.value, search.cursor_position) == (inert, len(inert))
        await pilot.press("escape")
        choice, reason = (
            DialogChoice("enter", "Cancel", lambda values, tell: ""),
            DialogField("text", "Reason"),
        )
        await app.push_screen(ActionDialog(DialogQuestion("Cancel?", (), [choice], [reason])))
        app.post_message(Paste(hostile))
        field = app.screen.query_one(Input)
        await until(pilot, lambda: bool(field.value))
        assert field.value == inert

    drive(client, play)


def test_at_completes_files_that_git_does_not_ignore(client: Client, tmp_path: Path) -> None:
    (tmp_path / "shop/.gitignore").write_text("secret\n")
    (tmp_path / "shop/secret").write_text("x")
    assert sorted(repository_files(tmp_path / "shop/src")) == [".gitignore", "README.md", "src/paint.py"]
    assert repository_files(tmp_path / "nowhere") == ()


def test_plain_talks_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with shop_client(tmp_path, monkeypatch, RULES), command_line(monkeypatch, capfd) as agents:
        ended = agents("--plain", typed="hello\n/quit\n")
        assert (ended.code, ended.out) == (0, "> Hello.\n\n> ")
        assert "takes no command" in agents("--plain", "plan", "list").err
        assert "missing command" in agents("--set", "log.level=info").err


def test_a_terminal_without_utf_8_talks_line_by_line_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cleveragents.cli.terminal_app.start.has_terminal", lambda: True)
    monkeypatch.setattr("cleveragents.cli.terminal_app.start.open_app", lambda session, *, continues: None)
    with shop_client(tmp_path, monkeypatch, RULES), command_line(monkeypatch, capfd) as agents:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", TextIOWrapper(FileIO(2, "w", closefd=False), encoding="latin-1"))
        ended = agents(typed="hello\n/quit\n")
        assert "Hello." in ended.out
        assert "the terminal app needs UTF-8, and this terminal uses latin-1" in ended.err
        monkeypatch.setattr(sys, "stderr", TextIOWrapper(FileIO(2, "w", closefd=False), encoding="UTF8"))
        assert agents().out == ""


def test_a_dumb_terminal_talks_line_by_line_and_the_app_opens_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    opened: list[bool] = []
    monkeypatch.setattr("cleveragents.cli.terminal_app.start.has_terminal", lambda: True)
    monkeypatch.setattr(
        "cleveragents.cli.terminal_app.start.open_app", lambda session, *, continues: opened.append(continues)
    )
    with shop_client(tmp_path, monkeypatch, RULES), command_line(monkeypatch, capfd) as agents:
        monkeypatch.setenv("TERM", "dumb")
        assert "Hello." in agents(typed="hello\n/quit\n").out
        monkeypatch.setenv("TERM", "xterm")
        assert [agents().code, agents("--continue").code] == [0, 0]
        assert opened == [False, True]
