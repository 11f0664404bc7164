"""A dialog that shows a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from cleveragents.cli.terminal_app.notices import plain

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Information"]


class Information(ModalScreen[None]):
    """A dialog with a title and a text or a table. Esc, Enter or q closes it."""

    DEFAULT_CSS: ClassVar[str] = """
    Information { align: center middle; }
    Information VerticalScroll {
        width: 90%; max-width: 90; height: auto; max-height: 80%; border: round $primary; padding: 0 1;
        background: $surface;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss(None)", "Close")]

    def __init__(self, title: str, text: str | Table) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = self._title
            box.border_subtitle = "Esc closes"
            shown = Text(plain(self._text)) if isinstance(self._text, str) else self._text
            yield Static(shown, markup=False)
