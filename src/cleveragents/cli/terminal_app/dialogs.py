"""Dialogs. Every action on a plan needs a key press in a dialog that shows its effects.

A dialog calls the client itself, in a worker thread. If the call fails, the dialog shows the error and keeps
the typed text. If the plan has changed since it was shown, the dialog closes, so that its screen can show the
plan as it is now and ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from cleveragents.cli.terminal_app.client_screen import ClientScreen, KeyLine, error_lines, visible
from cleveragents.cli.terminal_app.notices import SafeTextArea
from cleveragents.core.errors import PlanError, ResultChanged, StalePlan

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult

__all__ = [
    "ActionDialog",
    "DialogChoice",
    "DialogField",
    "DialogQuestion",
    "Done",
    "PickDialog",
    "RefusedAction",
    "Tell",
    "Values",
]

_STYLE = """
{0} {{ align: center middle; }}
{0} > Vertical {{
    width: 90%; max-width: 100; height: auto; max-height: 90%;
    border: round $accent; background: $surface; padding: 0 1; overflow-y: auto;
}}
{0} .title {{ text-style: bold; padding: 0 0 1 0; }}
{0} VerticalScroll {{ height: auto; max-height: 50vh; }}
{0} .problem {{ color: $text-error; }}
{0} KeyLine {{ padding: 1 0 0 0; }}
{0} Input, {0} TextBox {{ margin: 0; }}
{0} TextBox {{ height: 5; }}
{0} Input {{ background: $boost; }}
"""

Values = Mapping[str, str]
"""The typed texts by the names of their fields."""
Tell = Callable[[str], None]
"""Shows the progress of a call in its dialog."""


@dataclass(frozen=True, slots=True)
class DialogChoice:
    """A possible response: its key, its label, and the call of the client. The call gets the typed texts, and
    returns a message for the user.
    """

    key: str
    label: str
    act: Callable[[Values, Tell], str]


@dataclass(frozen=True, slots=True)
class DialogField:
    """A text to type: on one line, or in a box of several lines."""

    name: str
    label: str
    text: str = ""
    several_lines: bool = False


@dataclass(frozen=True, slots=True)
class DialogQuestion:
    """The content of a dialog. With fields, Enter sends the first choice.

    A dialog that `stays` shows an error about the state of the plan itself, instead of closing.
    """

    title: str
    lines: Sequence[str]
    choices: Sequence[DialogChoice]
    fields: Sequence[DialogField] = ()
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The action succeeded."""

    message: str


@dataclass(frozen=True, slots=True)
class RefusedAction:
    """The plan does not allow the action any more. `values` are the typed texts."""

    error: Exception
    values: Values


class TextBox(SafeTextArea):
    """A box for a text: Enter sends it, Ctrl-J begins a new line."""

    class Sent(Message):
        """Enter was pressed."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.prevent_default().stop()
            self.post_message(self.Sent())
        elif event.key == "ctrl+j":
            event.prevent_default().stop()
            self.insert("\n")
        else:
            await super()._on_key(event)


class ActionDialog(ModalScreen[Done | RefusedAction | None], ClientScreen[Done | RefusedAction | None]):
    """A dialog for one action on a plan. Closes with None if the user does not choose."""

    DEFAULT_CSS = _STYLE.format("ActionDialog")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Back")]

    def __init__(self, question: DialogQuestion, values: Values | None = None, problem: str = "") -> None:
        super().__init__()
        self.question = question
        self._values = dict(values or {})
        self._problem = problem
        self.is_busy = False

    def compose(self) -> ComposeResult:
        question = self.question
        with Vertical():
            yield Static(Content(visible(question.title)), classes="title")
            with VerticalScroll():
                yield Static(Content(visible("\n".join(question.lines))), id="shown")
                yield Static(Content(visible(self._problem)), classes="problem", id="problem")
            for field in question.fields:
                yield Static(Content(visible(field.label)))
                text = self._values.get(field.name, field.text)
                if field.several_lines:
                    yield TextBox(text, id=field.name, tab_behavior="focus")
                else:
                    yield Input(text, id=field.name, compact=True)
            yield KeyLine(self._keys())

    def on_mount(self) -> None:
        self.query_one("#shown").display = bool(self.question.lines)
        self.query_one("#problem").display = bool(self._problem)
        self.query_one(f"#{self.question.fields[0].name}" if self.question.fields else VerticalScroll).focus()

    def tell(self, line: str) -> None:
        """Show the progress of the call. Any thread may call it."""
        self.call_later(self._say, line)

    def action_close(self) -> None:
        if self.is_busy:
            self.inform("The action continues; the plan shows its outcome.")
        self.dismiss(None)

    def on_key(self, event: events.Key) -> None:
        for choice in self.question.choices:
            if event.key == choice.key and not self.question.fields:
                event.stop()
                self._choose(choice)

    def on_input_submitted(self) -> None:
        self._choose(self.question.choices[0])

    def on_text_box_sent(self) -> None:
        self._choose(self.question.choices[0])

    def _keys(self) -> list[tuple[str, str]]:
        if self.question.fields:
            several = any(field.several_lines for field in self.question.fields)
            keys = [("enter", self.question.choices[0].label), *([("ctrl+j", "New line")] if several else [])]
        else:
            keys = [(choice.key, choice.label) for choice in self.question.choices]
        return [*keys, ("esc", "Back")]

    def _choose(self, choice: DialogChoice) -> None:
        if self.is_busy:
            return
        self.is_busy = True
        self._say("…")
        values = {field.name: self._text_of(field) for field in self.question.fields}
        self.call(partial(choice.act, values, self.tell), self._done, partial(self._failed, values))

    def _text_of(self, field: DialogField) -> str:
        if field.several_lines:
            return self.query_one(f"#{field.name}", TextBox).text
        return self.query_one(f"#{field.name}", Input).value

    def _done(self, message: str) -> None:
        self.dismiss(Done(message))

    def _failed(self, values: Values, error: Exception) -> None:
        self.is_busy = False
        if isinstance(error, PlanError | ResultChanged | StalePlan) and not self.question.stays:
            self.dismiss(RefusedAction(error, values))
        else:
            self._say("\n".join(error_lines(error, self.prefix)))

    def _say(self, text: str) -> None:
        problem = self.query_one("#problem", Static)
        problem.update(Content(visible(text)))
        problem.display = True
        self.query_one(VerticalScroll).scroll_end(animate=False)


class PickDialog(ModalScreen[int | None]):
    """A list to choose from. Closes with the index of the chosen line, or None."""

    DEFAULT_CSS = _STYLE.format("PickDialog")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Back")]

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title = title
        self._lines = [Content(visible(line)) for line in lines]

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(visible(self._title)), classes="title")
            yield OptionList(*self._lines, markup=False)
            yield KeyLine([("enter", "Choose"), ("esc", "Back")])

    def action_close(self) -> None:
        self.dismiss(None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)
