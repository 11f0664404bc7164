"""The prompt: a text of one or more lines, with history and completion of files and commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from cleveragents.cli.terminal_app.notices import SafeTextArea
from cleveragents.core.text.control_characters import escape_controls

__all__ = ["Prompt", "PromptArea"]

_MOST_CANDIDATES = 8
_MOST_HISTORY = 200
_WORD = re.compile(r"(?:^|(?<=\s))@(\S*)$")
_COMMAND = re.compile(r"^/(\w*)$")


class PromptArea(SafeTextArea):
    """The text of the prompt. Enter sends it; Ctrl-J starts a new line."""

    class Sent(Message):
        """The user pressed Enter."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Moved(Message):
        """The user pressed a key that moves in the completions, the history or closes the completions."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    completing = False
    """Whether completions are shown: then arrows, Tab, Enter and Esc belong to them."""

    async def _on_key(self, event: events.Key) -> None:
        key = event.key
        if self._belongs_to_prompt(key):
            event.prevent_default()
            event.stop()
            self.post_message(self.Moved(key))
        elif key == "enter":
            event.prevent_default()
            event.stop()
            self.post_message(self.Sent(self.text))
        elif key in ("ctrl+j", "shift+enter"):
            event.prevent_default()
            event.stop()
            self.insert("\n")
        else:
            await super()._on_key(event)

    def _belongs_to_prompt(self, key: str) -> bool:
        if self.completing and key in ("up", "down", "tab", "enter", "escape"):
            return True
        row = self.cursor_location[0]
        return (key == "up" and row == 0) or (key == "down" and row == self.document.line_count - 1)


class Prompt(Vertical):
    """The prompt with its completions above it."""

    DEFAULT_CSS: ClassVar[str] = """
    Prompt { height: auto; }
    Prompt OptionList { height: auto; max-height: 8; display: none; border: none; }
    Prompt PromptArea { height: auto; min-height: 3; max-height: 10; }
    """

    class Sent(Message):
        """A text for the app: a message, a command that begins with `/`, or a shell command after `!`."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, commands: Sequence[tuple[str, str]]) -> None:
        super().__init__(id="prompt")
        self.files: Sequence[str] = ()
        self._commands = commands
        self._history: list[str] = []
        self._place = 0
        self._draft = ""
        self._offered: list[str] = []

    def compose(self) -> ComposeResult:
        yield OptionList(markup=False)
        yield PromptArea(
            placeholder="Ask, or request a change (@ file, / command, ! run)",
            highlight_cursor_line=False,
            show_line_numbers=False,
        )

    @property
    def area(self) -> PromptArea:
        """The editor."""
        return self.query_one(PromptArea)

    @property
    def text(self) -> str:
        """The text that is not sent yet."""
        return self.area.text

    def restore(self, text: str) -> None:
        """Put back a text that could not be sent, before whatever was typed since."""
        self._load(text if not self.text else f"{text}\n{self.text}")

    def on_prompt_area_sent(self, event: PromptArea.Sent) -> None:
        event.stop()
        text = event.text.strip()
        if text and self._history[-1:] != [text]:
            self._history = [*self._history, text][-_MOST_HISTORY:]
        self._place, self._draft = len(self._history), ""
        self._load("")
        self.post_message(self.Sent(text))

    def on_prompt_area_moved(self, event: PromptArea.Moved) -> None:
        event.stop()
        if not self.area.completing:
            self._recall(-1 if event.key == "up" else 1)
        elif event.key == "escape":
            self._offer([])
        elif event.key in ("up", "down"):
            choices = self.query_one(OptionList)
            move = choices.action_cursor_up if event.key == "up" else choices.action_cursor_down
            move()
        else:
            self._complete(send=event.key == "enter")

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self._offer(self._candidates())

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._complete(send=False)
        self.area.focus()

    def _before_cursor(self) -> str:
        row, column = self.area.cursor_location
        return str(self.area.document.get_line(row))[:column]

    def _candidates(self) -> list[tuple[str, str]]:
        """Return the completions of the word at the cursor, each with its description."""
        before = self._before_cursor()
        command, word = _COMMAND.match(before), _WORD.search(before)
        if command is not None and self.area.cursor_location[0] == 0:
            fitting = [one for one in self._commands if one[0].startswith(command[1])]
            return [] if [one[0] for one in fitting] == [command[1]] else fitting
        if word is None:
            return []
        wanted = word[1].casefold()
        found = [path for path in self.files if wanted in path.casefold()]
        found.sort(key=lambda path: (not _name_of(path).startswith(wanted), len(path), path))
        return [] if found == [word[1]] else [(path, "") for path in found[:_MOST_CANDIDATES]]

    def _offer(self, candidates: Sequence[tuple[str, str]]) -> None:
        choices = self.query_one(OptionList)
        rows = [Text.assemble(escape_controls(name), (f"  {text}", "dim")) for name, text in candidates]
        choices.set_options([Option(row) for row in rows])
        choices.display = bool(candidates)
        self.area.completing = bool(candidates)
        self._offered = [name for name, _ in candidates]
        if candidates:
            choices.highlighted = 0

    def _complete(self, *, send: bool) -> None:
        """Replace the word at the cursor by the highlighted candidate; with `send`, run the command."""
        place = self.query_one(OptionList).highlighted
        if place is None:
            return
        name, before = self._offered[place], self._before_cursor()
        row, column = self.area.cursor_location
        start = 1 if _COMMAND.match(before) else before.rindex("@") + 1
        self.area.replace(f"{name} ", (row, start), (row, column))
        self._offer([])
        if send and start == 1 and before.startswith("/"):
            self.area.post_message(PromptArea.Sent(self.text))

    def _recall(self, step: int) -> None:
        """Show an earlier or a later text of the history. The unsent text comes after the
        latest sent text.
        """
        place = self._place + step
        if not 0 <= place <= len(self._history):
            return
        if self._place == len(self._history):
            self._draft = self.text
        self._place = place
        self._load(self._draft if place == len(self._history) else self._history[place])

    def _load(self, text: str) -> None:
        self.area.load_text(text)
        self.area.move_cursor(self.area.document.end)
        self._offer([])


def _name_of(path: str) -> str:
    return path.rpartition("/")[2].casefold()
