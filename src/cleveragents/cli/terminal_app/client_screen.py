"""Screens that call a client: always in worker threads, so that the app never waits for a call.

Everything that a client returns is hostile: a model, a file or another user may have written it. So texts are
shown without control characters (`visible`), and never as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import Worker, WorkerState

from cleveragents.cli.output import rendered_markdown
from cleveragents.cli.terminal_app.notices import error_text, plain

if TYPE_CHECKING:
    from rich.markdown import Markdown
    from rich.text import Text
    from textual.binding import Binding

__all__ = [
    "BREAKPOINTS",
    "ClientScreen",
    "KeyLine",
    "error_lines",
    "formatted",
    "prefix_here",
    "visible",
]

_Result = TypeVar("_Result")
_Closed = TypeVar("_Closed")
_KEYS = {"escape": "esc", "space": "space", "question_mark": "?", "left_square_bracket": "["}
_TAB = 4
_ERROR_SECONDS = 15.0
_MOST_MARKDOWN = 50_000
BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]
"""Style classes of a screen, from these widths on."""


def visible(text: str) -> str:
    """Return the text without control characters, except line feeds. Tabs become spaces."""
    return plain(text).expandtabs(_TAB)


def formatted(text: str) -> Markdown | Text:
    """Return the text of a model as Markdown. A very long text stays plain, because its layout would take too
    long.
    """
    from rich.text import Text

    shown = visible(text)
    return Text(shown) if len(shown) > _MOST_MARKDOWN else rendered_markdown(shown)


def prefix_here() -> str:
    """Return the beginning of a command line that uses the same server. Call it in the main thread."""
    from cleveragents.cli.servers import prefix_in

    context = click.get_current_context(silent=True)
    return "agents" if context is None else prefix_in(context)


def error_lines(error: Exception, prefix: str) -> list[str]:
    """Return an error as lines: what failed, the remedies, and both sides of a conflict."""
    from cleveragents.core.errors import ApplyConflict

    lines = error_text(error, prefix).splitlines()
    return lines + (visible(error.details).splitlines() if isinstance(error, ApplyConflict) else [])


class ClientScreen(Screen[_Closed]):
    """A screen whose calls of a client run in worker threads.

    The screen and its callbacks run in the thread of the app. A call that ends after the screen was closed
    has no callback.
    """

    def __init__(self, **names: str | None) -> None:
        super().__init__(**names)
        self.prefix = prefix_here()
        self._calls: dict[Worker[Any], tuple[Callable[[Any], object], Callable[[Exception], object]]] = {}

    def call(
        self,
        act: Callable[[], _Result],
        done: Callable[[_Result], object],
        failed: Callable[[Exception], object] | None = None,
    ) -> None:
        """Call `act` in a worker thread, then `done` with its result, or `failed` with its error. Without
        `failed`, an error becomes a notice.
        """
        worker = self.run_worker(act, thread=True, exit_on_error=False)
        self._calls[worker] = done, failed or self.report

    def report(self, error: Exception) -> None:
        """Show an error as a notice, with its remedies."""
        self.inform("\n".join(error_lines(error, self.prefix)), failed=True)

    def inform(self, message: str, *, failed: bool = False) -> None:
        """Show a notice."""
        seconds = _ERROR_SECONDS if failed else None
        severity: Literal["error", "information"] = "error" if failed else "information"
        self.notify(visible(message), severity=severity, timeout=seconds, markup=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state not in (WorkerState.SUCCESS, WorkerState.ERROR):
            return
        done, failed = self._calls.pop(event.worker, (None, None))
        if event.state is WorkerState.SUCCESS and done is not None:
            done(event.worker.result)
        elif isinstance(event.worker.error, Exception) and failed is not None:
            failed(event.worker.error)


class KeyLine(Static):
    """Keys and their descriptions, on as many lines as they need. Without `keys`, the keys of the screen are
    shown.
    """

    DEFAULT_CSS = """
    KeyLine { width: 1fr; }
    KeyLine.-of-screen { dock: bottom; background: $panel; padding: 0 1; }
    """

    def __init__(self, keys: Sequence[tuple[str, str]] | None = None) -> None:
        super().__init__(markup=False, classes="-of-screen" if keys is None else None)
        self._keys = keys

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._show)

    def on_resize(self) -> None:
        self._show(self.screen)

    def _show(self, screen: Screen[Any]) -> None:
        active = [one for one in screen.active_bindings.values() if one.enabled and one.binding.show]
        # Last those of the app, whose places are otherwise those of hidden keys.
        active.sort(key=lambda one: one.node is screen.app)
        known = [(_name_of(one.binding), one.binding.description) for one in active]
        self.update(_in_lines(known if self._keys is None else self._keys, self.content_size.width))


def _in_lines(keys: Sequence[tuple[str, str]], width: int) -> Content:
    """Return the keys with their descriptions; a line breaks only between two keys."""
    parts: list[Content] = []
    used = 0
    for key, description in keys:
        label = Content(f" {visible(description)}")
        length = len(key) + label.cell_length
        if used and used + length + 2 > width:
            parts.append(Content("\n"))
            used = 0
        elif used:
            parts.append(Content("  "))
            used += 2
        parts += [Content(key).stylize("bold $accent"), label]
        used += length
    return Content("").join(parts)


def _name_of(binding: Binding) -> str:
    """Return the name of the key. A capital letter could be taken for the key without Shift."""
    if binding.key.isupper():
        return f"shift+{binding.key.lower()}"
    return binding.key_display or _KEYS.get(binding.key, binding.key)
