"""The conversation of the terminal app when the user leaves a session too early, or a call fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.pilot import Pilot

from cleveragents.api.conversations.client import Attachment, ConversationRequest, TurnOutputView, TurnView
from cleveragents.cli.terminal_app.app import TerminalApp
from cleveragents.cli.terminal_app.turn_block import TurnBlock
from cleveragents.conversations.model import TurnState
from tests.terminal_bench import until

NOW = datetime(2026, 11, 15, tzinfo=UTC)
SECONDS = 60.0


def turn(session_id: str, question: str, state: TurnState) -> TurnView:
    return TurnView(
        conversation_id=session_id, number=1, question=question, answer="", state=state, error=None, by=None,
        read_only=False, plans=(), output_after=0, created=NOW, ended=None,
    )  # fmt: skip


class GatedSessions:
    """Sessions whose calls wait for the test, and whose output fails if the test says so."""

    def __init__(self) -> None:
        self.sending, self.more, self.ending = threading.Event(), threading.Event(), threading.Event()
        self.created: list[str] = []
        self.sent: list[str] = []
        self.watched = self.closed = 0
        self.failure: Exception | None = None

    def get(self, session_id: str) -> Any:
        facts = {"turns": 1, "plans": (), "model": None, "calls_tools": True}
        return SimpleNamespace(id=session_id, resource="/repos/b", resource_name=None, **facts)

    def create(self, request: ConversationRequest) -> Any:
        self.created.append(f"S{len(self.created) + 1}")
        return self.get(self.created[-1])

    def turns(self, session_id: str, **_: object) -> Any:
        return SimpleNamespace(items=(turn(session_id, "first", TurnState.RUNNING),))

    def send(self, session_id: str, text: str, *, attachments: Sequence[Attachment] = ()) -> TurnView:
        self.sent.append(text)
        self.sending.wait(SECONDS)
        return turn(session_id, text, TurnState.RUNNING)

    def watch(self, session_id: str) -> Iterator[TurnOutputView]:
        if self.failure is not None:
            raise self.failure
        self.watched += 1
        try:
            for number, text in enumerate(("one ", "two "), 1):
                yield TurnOutputView(
                    conversation_id=session_id, number=number, kind="model", text=text, time=NOW
                )
                self.more.wait(SECONDS)
            self.ending.wait(SECONDS)
        finally:
            self.closed += 1

    def wait(self, session_id: str) -> TurnView:
        return turn(session_id, "first", TurnState.ANSWERED)


def drive(
    sessions: GatedSessions,
    play: Callable[[Pilot[None], TerminalApp], Awaitable[None]],
    session_id: str | None = None,
) -> None:
    nothing = SimpleNamespace(items=())
    client: Any = SimpleNamespace(
        conversations=sessions,
        plans=SimpleNamespace(list=lambda **_: nothing),
        events=SimpleNamespace(list=lambda **_: nothing, follow=lambda **_: iter(())),
        close=lambda: None,
    )

    async def run() -> None:
        app = TerminalApp(client, ConversationRequest(repository="/repos/a"), session_id=session_id)
        async with app.run_test() as pilot:
            try:
                await play(pilot, app)
            finally:
                for event in (sessions.sending, sessions.more, sessions.ending):
                    event.set()

    asyncio.run(run())


def answers(app: TerminalApp) -> list[str]:
    return [block.answer for block in app.home.query(TurnBlock)]


def test_a_message_that_is_sent_after_new_does_not_return() -> None:
    sessions = GatedSessions()

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        pane.send("first")
        await until(pilot, lambda: sessions.sent == ["first"])
        await pane.start_new()
        sessions.sending.set()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert (pane.session, pane.running, answers(app)) == (None, False, [])
        sessions.more.set()
        sessions.ending.set()
        pane.send("second")
        await until(pilot, lambda: answers(app) == ["one two "] and not pane.running)
        assert pane.session is not None
        assert (pane.session.id, sessions.sent) == ("S2", ["first", "second"])
        pane.know(sessions.get("S1"))
        assert pane.session.id == "S2"

    drive(sessions, play)


def test_a_session_that_is_opened_twice_shows_its_output_once() -> None:
    sessions = GatedSessions()

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        await until(pilot, lambda: answers(app) == ["one "])
        pane.open("S")
        await until(pilot, lambda: sessions.watched == 2 and answers(app) == ["one "])
        sessions.more.set()
        await until(pilot, lambda: sessions.closed == 1)  # the first watcher ends before the turn does
        await until(pilot, lambda: answers(app) == ["one two "])
        sessions.ending.set()
        await until(pilot, lambda: not pane.running)
        assert answers(app) == ["one two "]

    drive(sessions, play, session_id="S")


def test_an_unexpected_error_leaves_a_prompt_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # the details of the error go here
    sessions = GatedSessions()
    sessions.failure = OSError("disk I/O error")
    sessions.sending.set()

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        pane = app.home.conversation
        pane.send("first")
        await until(pilot, lambda: any("OSError" in one.message for one in app._notifications))
        await until(pilot, lambda: not pane.running)

    drive(sessions, play)
    (log,) = tmp_path.iterdir()
    assert "disk I/O error" in log.read_text()
