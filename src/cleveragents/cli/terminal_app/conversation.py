"""The conversation with the assistant: turns with streamed Markdown, and the prompt."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from click import ClickException
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Static
from textual.worker import Worker, WorkerState

from cleveragents.cli.terminal_app.commands import COMMANDS, run_command
from cleveragents.cli.terminal_app.events import Batches
from cleveragents.cli.terminal_app.notices import error_text, plain
from cleveragents.cli.terminal_app.prompt import Prompt
from cleveragents.cli.terminal_app.removed_widgets import free_removed_widgets
from cleveragents.conversations.model import TurnState
from cleveragents.core.errors import CleverAgentsError, Closed, RequestRefused, ServerUnreachable

if TYPE_CHECKING:
    from textual.notifications import SeverityLevel

    from cleveragents.api.client import Client
    from cleveragents.api.conversations.client import (
        ConversationRequest,
        ConversationView,
        TurnOutputView,
        TurnView,
    )
    from cleveragents.cli.terminal_app.turn_block import TurnBlock
    from cleveragents.models.model.attachment import Attachment

__all__ = ["ConversationPane", "TurnEnded"]

_SHOWN_TURNS = 30
"""Older turns are not on the screen; `agents session show` shows them."""
_NOTICE_SECONDS, _ERROR_SECONDS = 6.0, 12.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 15.0


_NO_TOOLS = (
    "This model starts and changes no plans by itself: it only answers questions. /plan GOAL starts a plan. "
    "To change a plan, open it and press c or g."
)


class TurnEnded(Message):
    """A turn of the session ended, and may have started plans."""

    def __init__(self, turn: TurnView) -> None:
        super().__init__()
        self.turn = turn


class ConversationPane(Vertical):
    """A session with the assistant. A new session is created with the first message.

    Only the loop of the app changes its fields; worker threads pass results with `call_later`.
    """

    DEFAULT_CSS: ClassVar[str] = """
    ConversationPane #turns { height: 1fr; }
    ConversationPane #notice, ConversationPane .hint { color: $text-warning; padding: 0 1; }
    ConversationPane #activity { height: auto; max-height: 2; color: $text-muted; padding: 0 1; }
    """

    def __init__(
        self,
        client: Client,
        request: ConversationRequest,
        files: Callable[[], Sequence[str]],
        *,
        session_id: str | None = None,
        prefix: str = "agents",
        run_plans: Callable[[Sequence[str]], None] | None = None,
        notice: str = "",
    ) -> None:
        super().__init__(id="conversation")
        self.client = client
        self.request = request
        self.session: ConversationView | None = None
        self.running = False
        self._attached: Sequence[Attachment] = ()  # the files of the next message
        self._files = files
        self._first = session_id
        self._prefix = prefix
        self._run_plans = run_plans
        self._notice = notice
        self._block: TurnBlock | None = None
        self._redirected: str | None = None  # the plan that gets the next message
        self._visit = 0  # counts the sessions that were opened or left
        self._pieces: Batches[tuple[TurnBlock, TurnOutputView]] = Batches(self, self._show)
        self._stopped = threading.Event()

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="turns"):
            if self._notice:
                yield Static(plain(self._notice), id="notice", markup=False)
        yield Static("", id="activity", markup=False)
        yield Prompt([(one.name, one.help) for one in COMMANDS])

    @property
    def prompt(self) -> Prompt:
        """The prompt."""
        return self.query_one(Prompt)

    @property
    def place(self) -> tuple[str | None, str | os.PathLike[str]]:
        """The registered resource of the session, if it has one, and its repository or directory."""
        if self.session is None:
            return self.request.resource, self.request.repository
        return self.session.resource_name, self.session.resource

    def on_mount(self) -> None:
        self.query_one("#turns").anchor()
        if self._first is not None:
            self.open(self._first)

    def load_files(self) -> None:
        """Read the names of the files that `@` completes, in a thread."""

        def read() -> None:
            self.call_later(self._know_files, self._files())

        self.work(read)

    def _know_files(self, files: Sequence[str]) -> None:
        self.prompt.files = files

    def on_unmount(self) -> None:
        self._stopped.set()

    def work(self, call: Callable[[], None], *, failed: Callable[[], None] | None = None) -> None:
        """Run a call of the client in a thread. Its errors become notices; then `failed` runs on the loop."""

        def run() -> None:
            done = False
            try:
                call()
                done = True
            except Closed:
                return
            except (CleverAgentsError, ClickException) as error:
                self.say(error_text(error, self._prefix), severity="error")
            finally:
                if failed is not None and not done:
                    self.call_later(failed)

        self.run_worker(run, thread=True, exit_on_error=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Report an unexpected error of a call."""
        error = event.worker.error
        if event.state is WorkerState.ERROR and isinstance(error, Exception):
            self.say(error_text(error, self._prefix), severity="error")

    def say(self, text: str, *, severity: SeverityLevel = "information") -> None:
        """Show a notice. Any thread may call it."""
        seconds = _ERROR_SECONDS if severity == "error" else _NOTICE_SECONDS
        title = "Error" if severity == "error" else ""
        self.app.notify(plain(text), title=title, severity=severity, timeout=seconds, markup=False)

    def open(self, session_id: str) -> None:
        """Open another session and follow its turn, if one runs. On this machine, its queued plans start."""

        def read() -> None:
            session = self.client.conversations.get(session_id)
            after = str(max(0, session.turns - _SHOWN_TURNS))
            turns = self.client.conversations.turns(session.id, limit=_SHOWN_TURNS, after=after).items
            self.call_later(self._opened, session, turns)
            if self._run_plans is not None:
                self._run_plans(session.plans)

        self.work(read)

    async def _opened(self, session: ConversationView, turns: Sequence[TurnView]) -> None:
        from cleveragents.cli.terminal_app.turn_block import TurnBlock, ended_text

        self.session, self.running = session, False
        await self._clear()
        await self._hint(session)
        blocks = [TurnBlock(one.question, one.answer, ended_text(one, self._prefix)) for one in turns]
        if turns and turns[-1].state is TurnState.RUNNING:
            blocks[-1] = TurnBlock(turns[-1].question)
        await self.query_one("#turns").mount_all(blocks)
        if turns and turns[-1].state is TurnState.RUNNING:
            self._follow(session, blocks[-1])

    async def start_new(self, *, model: str | None = None) -> None:
        """Leave the session; the next message starts a new session with this model."""
        if model is not None:
            self.request = replace(self.request, model=model)
        self.session, self.running = None, False
        await self._clear()

    async def _clear(self) -> None:
        self._block = self._redirected = None
        self._visit += 1
        await self.query_one("#turns").remove_children()
        free_removed_widgets()
        self.query_one("#activity", Static).update("")

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        event.stop()
        if event.text.startswith(("/", "!")):
            run_command(self, event.text)
        elif event.text and self._redirected is not None:
            self._correct(self._redirected, event.text)
        elif event.text or (self.session is not None and not self.running):
            self.send(event.text)

    def send(self, text: str) -> None:
        """Send a message; an empty message continues a turn that was not answered. A text that cannot be sent
        returns to the prompt.
        """
        if self.running:
            self.say("The assistant is still answering. Press Esc to stop it.", severity="warning")
            self.prompt.restore(text)
            return
        self.running = True
        self.query_one("#activity", Static).update("sending…")
        session, request, visit = self.session, self.request, self._visit
        attached, self._attached = (self._attached, ()) if text else ((), self._attached)

        def call() -> None:
            sessions = self.client.conversations
            opened = session or sessions.create(request)
            if session is None:
                self.call_later(self._created, visit, opened)
            turn = (
                sessions.send(opened.id, text, attachments=attached) if text else sessions.resume(opened.id)
            )
            self.call_later(self._begin, visit, opened, turn)

        def failed() -> None:
            if visit == self._visit:
                self._rest()
            if text:
                self._attached = (*attached, *self._attached)
                self.prompt.restore(text)

        self.work(call, failed=failed)

    def redirect(self, plan_id: str | None) -> None:
        """Send the next message to the agent of a plan; with None, to the assistant."""
        self._redirected = plan_id
        goes = f"your next message goes to the agent of plan {plan_id}; Esc: to the assistant"
        if plan_id is not None or not self.running:
            self.query_one("#activity", Static).update("" if plan_id is None else goes)

    def turn_back(self) -> bool:
        """Send the next message to the assistant again, and return whether a plan would have got it."""
        if self._redirected is None:
            return False
        self.redirect(None)
        self.say("Your next message goes to the assistant.")
        return True

    def _correct(self, plan_id: str, text: str) -> None:
        """Send a message to the agent of a plan, as a correction by the user. A text that cannot be sent
        returns to the prompt.
        """
        self.redirect(None)

        def call() -> None:
            self.client.plans.correct(plan_id, text)
            self.say(f"Plan {plan_id} continues with your message.")

        def failed() -> None:
            self.redirect(plan_id)
            self.prompt.restore(text)

        self.work(call, failed=failed)

    def attach(self, files: Sequence[Attachment]) -> None:
        """Add files to the next message, unless they are too many or too large together."""
        from cleveragents.models.model.attachment import ensure_attachable

        together = (*self._attached, *files)
        try:
            ensure_attachable(together)
        except RequestRefused as error:
            self.say(error_text(error, self._prefix), severity="error")
            return
        self._attached = together
        self.say(f"Your next message has: {', '.join(one.name for one in self._attached)}")

    def detach(self) -> None:
        """Remove all files from the next message."""
        self._attached = ()
        self.say("Your next message has no attachments.")

    def know(self, session: ConversationView) -> None:
        """Remember the session as it is now, unless the user left it."""
        if self.session is not None and self.session.id == session.id:
            self.session = session

    async def _created(self, visit: int, session: ConversationView) -> None:
        if visit == self._visit and self.app.is_running:
            self.session = session
            await self._hint(session)

    async def _hint(self, session: ConversationView) -> None:
        """Say what the model of a new or opened session does not do."""
        if not session.calls_tools:
            await self.query_one("#turns").mount(Static(_NO_TOOLS, classes="hint", markup=False))

    async def _begin(self, visit: int, session: ConversationView, turn: TurnView) -> None:
        from cleveragents.cli.terminal_app.turn_block import TurnBlock  # Markdown takes time to load

        if visit != self._visit or not self.app.is_running:
            return  # the user left the session or the app while the message was sent
        block, turns = TurnBlock(turn.question), self.query_one("#turns")
        await turns.mount_all([block])
        for old in turns.children[:-_SHOWN_TURNS]:  # they would take memory for as long as the app runs
            await old.remove()
        free_removed_widgets()
        self._follow(session, block)

    def _follow(self, session: ConversationView, block: TurnBlock) -> None:
        self.running, self._block = True, block
        self.query_one("#activity", Static).update("thinking… Esc stops the answer")
        self.work(lambda: self._watch(session.id, block))

    def _watch(self, session_id: str, block: TurnBlock) -> None:
        """Pass the output of the turn on, then its end, until the app shows another session. Runs on a
        thread; reconnects with growing pauses.
        """
        seen, pause = 0, _FIRST_PAUSE_SECONDS
        while block is self._block and not self._stopped.is_set():
            try:
                for piece in self.client.conversations.watch(session_id):
                    if block is not self._block:
                        return
                    if piece.number > seen:
                        seen, pause = piece.number, _FIRST_PAUSE_SECONDS
                        self._pieces.put((block, piece))
                turn = self.client.conversations.wait(session_id)
            except ServerUnreachable as error:
                self.say(f"{error_text(error, self._prefix)}\nTrying again.", severity="warning")
                self._stopped.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                continue
            except Exception:  # `work` reports it
                self.call_later(self._lost, block)
                raise
            self.call_later(self._finish, block, turn)
            return

    async def _show(self, pieces: list[tuple[TurnBlock, TurnOutputView]]) -> None:
        block = self._block
        if block is None:
            return
        ours = [one for about, one in pieces if about is block]  # not of a session that was left
        said = "".join(one.text for one in ours if one.kind == "model")
        if said:
            await block.add(said)
        lines = [one.text.strip() for one in ours if one.kind == "progress" and one.text.strip()]
        if lines:
            self.query_one("#activity", Static).update(Text(plain(lines[-1])))

    async def _finish(self, block: TurnBlock, turn: TurnView) -> None:
        await self._pieces.flush()
        if block is not self._block:
            return  # another session was opened meanwhile
        await block.finish(turn, self._prefix)
        self._rest()
        self.post_message(TurnEnded(turn))

    def _lost(self, block: TurnBlock) -> None:
        if block is self._block:
            self._rest()

    def _rest(self) -> None:
        self.running, self._block = False, None
        self.redirect(self._redirected)

    def stop(self) -> bool:
        """Stop the running turn, and return whether one runs."""
        session = self.session
        if not self.running or session is None:
            return False
        self.query_one("#activity", Static).update("stopping…")
        self.work(lambda: self._stop(session.id))
        return True

    def _stop(self, session_id: str) -> None:
        self.client.conversations.stop(session_id)
        self.say("Stopped. Type what to do instead, or press Enter on an empty prompt to continue.")
