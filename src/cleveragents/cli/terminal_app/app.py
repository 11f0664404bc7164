"""The terminal app: the board and the conversation on one screen, plans and reviews on screens of their own.

The app is a thin client: every action is a call of `Client` in a worker thread, so the screen never freezes.
One thread reads events; bursts of them are joined, so that no part of the screen changes more than 20 times a
second.
Text of models, files and other users is shown as it is: escapes, markup and links in it have no effect.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import Worker, WorkerState

from cleveragents.cli.session import collect_often
from cleveragents.cli.terminal_app.board import PlanBoard, PlanChosen
from cleveragents.cli.terminal_app.conversation import ConversationPane, TurnEnded
from cleveragents.cli.terminal_app.driver import TolerantDriver, end_without_terminal
from cleveragents.cli.terminal_app.events import Batches, EventReader, call_after
from cleveragents.cli.terminal_app.messages import PlanChanged
from cleveragents.cli.terminal_app.notices import error_text, notify_error, pasted
from cleveragents.cli.terminal_app.removed_widgets import KeyFooter, free_removed_widgets
from cleveragents.core.errors import CleverAgentsError, Closed
from cleveragents.plans.model.plan import PlanState
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from cleveragents.api.client import Client
    from cleveragents.api.conversations.client import ConversationRequest
    from cleveragents.api.plans.summary import PlanSummary

__all__ = ["Home", "TerminalApp"]

_TWICE_SECONDS = 2.0
_BOARD_SECONDS = 0.25
"""The least time between two reads of the list of plans."""
_OPEN_PLANS, _LATEST_PLANS = 200, 30
_OPEN = tuple(state for state in PlanState if not state.ended)
_RUNNING = (PlanStatus.QUEUED, PlanStatus.PLANNING, PlanStatus.RUNNING)


class Home(Screen[None]):
    """The board and the conversation: side by side, or in a narrow terminal one above the other."""

    CSS: ClassVar[str] = """
    #main { layout: horizontal; height: 1fr; }
    #conversation { width: 3fr; }
    #board { width: 2fr; height: 1fr; border: round $primary; }
    #board:focus { border: round $accent; }
    #connection { display: none; background: $warning; color: $text; padding: 0 1; }
    Home.-narrow #main { layout: vertical; }
    Home.-narrow #board { width: 1fr; height: auto; max-height: 40%; }
    Home.-narrow #conversation { width: 1fr; height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "pause", "Pause"),
        # A priority: otherwise Enter that arrives together with F2 still goes to the former focus.
        Binding("f2", "switch", "Board/prompt", priority=True),
    ]

    def __init__(self, conversation: ConversationPane) -> None:
        super().__init__()
        self.conversation = conversation
        self.board = PlanBoard()
        self.board.border_title = "Plans"
        self.connection = Static("", id="connection", markup=False)
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """The keys in the order of the footer: those of the app are the last, as in every `KeyLine`."""
        return dict(sorted(super().active_bindings.items(), key=lambda one: one[1].node is self.app))

    def compose(self) -> ComposeResult:
        yield self.connection
        with Container(id="main"):
            yield self.board
            yield self.conversation
        yield KeyFooter(show_command_palette=False)  # it would cover other keys at 60 columns; Help names it

    def on_mount(self) -> None:
        self.conversation.prompt.area.focus()

    def on_screen_resume(self) -> None:
        free_removed_widgets()  # those of the screen that was closed

    def action_switch(self) -> None:
        area = self.conversation.prompt.area
        self.set_focus(area if self.board.has_focus else self.board)

    def action_pause(self) -> None:
        """Stop the answer, or pause the highlighted plan or the plan of the session that runs. The next
        message then goes to the agent of this plan.
        """
        if self.conversation.stop() or self.conversation.turn_back():
            return
        plan = self._running_plan()
        if plan is None:
            self.conversation.say("Nothing runs here.")
            return
        pane = self.conversation
        session = pane.session and pane.session.id

        def pause() -> None:
            paused = pane.client.plans.pause(plan.id)
            if paused.request.get("limits") is None:  # fixed steps: no agent would read a message
                pane.say(f"Plan {plan.id} is paused. Open it to resume or cancel it.")
                return
            # guard: a message in another session is not for this plan
            if (pane.session and pane.session.id) == session:
                pane.call_later(pane.redirect, plan.id)
            pane.say(f"Plan {plan.id} is paused. Type what to change, or open the plan to resume it.")

        pane.work(pause)
        pane.prompt.area.focus()

    def _running_plan(self) -> PlanSummary | None:
        plans, session = self.board.plans, self.conversation.session
        started = () if session is None else session.plans
        chosen = [self.board.plan_id] if self.board.has_focus else reversed(started)
        found = [plans[one] for one in chosen if one is not None and one in plans]
        return next((plan for plan in found if plan.status in _RUNNING), None)

    def on_turn_ended(self, event: TurnEnded) -> None:
        event.stop()
        pane = self.conversation

        def read() -> None:
            pane.call_later(pane.know, pane.client.conversations.get(event.turn.conversation_id))

        pane.work(read)


class TerminalApp(App[None]):
    """The terminal app. `files` returns the files that `@` completes; `session_id` is continued. `run_plans`
    gets the plans of each session that is opened.
    """

    TITLE = "CleverAgents"
    CSS: ClassVar[str] = """
    ToastRack { dock: top; align: right top; max-height: 50%; }  /* notices do not cover the prompt */
    * { scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help"),
        Binding("ctrl+c", "interrupt", "Quit", priority=True),
    ]

    def __init__(
        self,
        client: Client,
        request: ConversationRequest,
        files: Callable[[], Sequence[str]] = lambda: (),
        *,
        session_id: str | None = None,
        prefix: str = "agents",
        run_plans: Callable[[Sequence[str]], None] | None = None,
        notice: str = "",
    ) -> None:
        super().__init__(driver_class=TolerantDriver)
        self.client = client
        self.prefix = prefix
        self.board_reads = 0
        self._conversation = ConversationPane(
            client,
            request,
            files,
            session_id=session_id,
            prefix=prefix,
            run_plans=run_plans,
            notice=notice,
        )
        self._events: Batches[tuple[str, ...]] = Batches(self, self._changed)
        self._reader = EventReader(client, lambda ids: self._events.put(tuple(ids)), self._lost)
        self._interrupted = 0.0
        self._reading = self._read_again = self._started = False

    @cached_property
    def home(self) -> Home:
        """The first screen."""
        return Home(self._conversation)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Paste):  # guard: Textual's own fields show any character
            event.text = pasted(event.text)
        await super().on_event(event)

    async def on_mount(self) -> None:
        if not self.is_headless:  # without handlers, a signal would leave the terminal in the mode of the app
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, end_without_terminal, self)
            loop.add_signal_handler(signal.SIGTERM, self.exit, None, 128 + signal.SIGTERM)
        await self.push_screen(self.home)
        self.reload_board()

    def on_unmount(self) -> None:
        self._reader.stop()
        self.client.close()  # threads that wait for events or output end

    def action_help(self) -> None:
        """Show the commands and keys, on every screen."""
        from cleveragents.cli.terminal_app.commands import run_command

        run_command(self._conversation, "/help")

    def action_interrupt(self) -> None:
        """Copy the selected text. Without one, quit when pressed twice."""
        selected = self.screen.get_selected_text()
        if selected:
            self.copy_to_clipboard(selected)
            return
        now = time.monotonic()
        if now - self._interrupted < _TWICE_SECONDS:
            self.exit()
        self._interrupted = now
        self.notify("Press Ctrl-C again to quit. Plans continue.", timeout=_TWICE_SECONDS, markup=False)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield from super().get_system_commands(screen)
        if screen is self.home:
            from cleveragents.cli.terminal_app.commands import COMMANDS, run_command

            for one in COMMANDS:
                pane, text = self._conversation, f"/{one.name}"
                yield SystemCommand(text, one.help, lambda pane=pane, text=text: run_command(pane, text))

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.report(event.worker.error)

    def report(self, error: BaseException) -> None:
        """Show an error. Any thread may call it."""
        if isinstance(error, Exception):
            notify_error(self, error, self.prefix)

    def on_plan_chosen(self, event: PlanChosen) -> None:
        event.stop()
        from cleveragents.cli.terminal_app.plan_screen import PlanScreen

        self.push_screen(PlanScreen(self.client, event.plan_id))

    def reload_board(self) -> None:
        """Read the plans in a thread and show them. Calls while it reads cause one more read afterwards."""
        if self._reading:
            self._read_again = True
            return
        self._reading = True
        self.board_reads += 1
        self.run_worker(self._read_board, thread=True, exit_on_error=False)

    def _read_board(self) -> None:
        began = time.monotonic()
        try:
            plans = self.client.plans
            known = {plan.id: plan for plan in plans.list(limit=_LATEST_PLANS).items}
            known |= {plan.id: plan for plan in plans.list(states=_OPEN, limit=_OPEN_PLANS).items}
            self.call_later(self._show_plans, list(known.values()), began)
        except Closed:
            return
        except CleverAgentsError as error:
            self.call_later(self._board_failed, error_text(error, self.prefix), began)

    def _show_plans(self, plans: Sequence[PlanSummary], began: float) -> None:
        self.home.board.show(plans, datetime.now(UTC))
        self.home.connection.display = False
        self._board_done(began)

    def _board_failed(self, text: str, began: float) -> None:
        self._show_problem(text)
        self._board_done(began)

    def _board_done(self, began: float) -> None:
        if not self._started:  # only now: the first paint shows the plans as soon as possible
            self._started = True
            collect_often()
            self._reader.start()
            self._conversation.load_files()
        wait = began + _BOARD_SECONDS - time.monotonic()
        call_after(self, max(wait, 0.0), self._board_free)

    def _board_free(self) -> None:
        self._reading = False
        if self._read_again and self.is_running:
            self._read_again = False
            self.reload_board()

    async def _changed(self, found: list[tuple[str, ...]]) -> None:
        if not self.screen_stack:  # the app is closing
            return
        for plan_id in dict.fromkeys(one for ids in found for one in ids):
            self.screen.post_message(PlanChanged(plan_id))
        self.reload_board()

    def _lost(self, error: CleverAgentsError) -> None:
        self.call_later(self._show_problem, error_text(error, self.prefix))

    def _show_problem(self, text: str) -> None:
        self.home.connection.update(f"No connection; trying again. {text}")
        self.home.connection.display = True
