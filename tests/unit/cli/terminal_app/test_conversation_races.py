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


class Talks:
    """Sessions whose calls wait for the test, and whose output fails if the test says so."""

    def __init__(self) -> None:
        self.sending, self.more, self.ending = threading.Event(), threading.Event(), threading.Event()
        self.created: list[str] = []
        self.sent: list[str] = []
        self.watched = self.closed = 0
        self.failure: Exception | None = None

    def get(self, session_id: str) -> Any:
        return SimpleNamespace(
            id=session_id, turns=1, plans=(), model=None, resource="/repos/b", resource_name=None
        )

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
    talks: Talks, play: Callable[[Pilot[None], TerminalApp], Awaitable[None]], session_id: str | None = None
) -> None:
    nothing = SimpleNamespace(items=())
    client: Any = SimpleNamespace(
        conversations=talks,
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
                for event in (talks.sending, talks.more, talks.ending):
                    event.set()

    asyncio.run(run())


def answers(app: TerminalApp) -> list[str]:
    return [block.answer for block in app.home.query(TurnBlock)]


def test_a_message_that_is_sent_after_new_does_not_return() -> None:
    talks = Talks()

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        talk = app.home.conversation
        talk.send("first")
        await until(pilot, lambda: talks.sent == ["first"])
        await talk.start_new()
        talks.sending.set()
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert (talk.talk, talk.running, answers(app)) == (None, False, [])
        talks.more.set()
        talks.ending.set()
        talk.send("second")
        await until(pilot, lambda: answers(app) == ["one two "] and not talk.running)
        assert talk.talk is not None
        assert (talk.talk.id, talks.sent) == ("S2", ["first", "second"])
        talk.know(talks.get("S1"))
        assert talk.talk.id == "S2"

    drive(talks, play)


def test_a_session_that_is_opened_twice_shows_its_output_once() -> None:
    talks = Talks()

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        talk = app.home.conversation
        await until(pilot, lambda: answers(app) == ["one "])
        talk.open("S")
        await until(pilot, lambda: talks.watched == 2 and answers(app) == ["one "])
        talks.more.set()
        await until(pilot, lambda: talks.closed == 1)  # the first watcher ends before the turn does
        await until(pilot, lambda: answers(app) == ["one two "])
        talks.ending.set()
        await until(pilot, lambda: not talk.running)
        assert answers(app) == ["one two "]

    drive(talks, play, session_id="S")


def test_an_unexpected_error_leaves_a_prompt_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # the details of the error go here
    talks = Talks()
    talks.failure = OSError("disk I/O error")
    talks.sending.set()

    async def play(pilot: Pilot[None], app: TerminalApp) -> None:
        talk = app.home.conversation
        talk.send("first")
        await until(pilot, lambda: any("OSError" in one.message for one in app._notifications))
        await until(pilot, lambda: not talk.running)

    drive(talks, play)
    (log,) = tmp_path.iterdir()
    assert "disk I/O error" in log.read_text()
