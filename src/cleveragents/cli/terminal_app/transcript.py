"""The recorded output of a plan as entries for a screen: lines of progress and of commands, and the output of
models as Markdown.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.text import Text
from textual.widgets import RichLog

from cleveragents.cli.output import continued
from cleveragents.cli.render.live_output import LiveOutput
from cleveragents.cli.terminal_app.client_screen import formatted, visible
from cleveragents.cli.terminal_app.events import call_after
from cleveragents.core.text.redaction import PieceMask, redact_text

if TYPE_CHECKING:
    from textual import events

    from cleveragents.api.plans.client import Plans

__all__ = ["Entry", "OutputLog", "Transcript"]

_PAGE = 500
_MOST_ENTRIES = 2000
_MOST_LINES = 5000
_AT_ONCE = 25
_PAUSE_SECONDS = 0.01
_TAIL = 2000
_HEADS = ("verdict", "summary")
_LISTS = ("decisions", "steps", "findings")
_TEXTS = ("title", "question", "message", "text")


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece of the transcript."""

    kind: Literal["progress", "output", "model"]
    text: str


class Transcript:
    """Reads the output of a plan, each piece once. Not thread-safe: one reader at a time."""

    def __init__(self, plan_id: str) -> None:
        self._plan_id = plan_id
        self._number = 0
        self._mask = PieceMask()
        self._said: list[str] = []  # masked
        self._end = ""
        self._new: deque[Entry] = deque(maxlen=_MOST_ENTRIES)
        self._output = LiveOutput(lambda line: self._add("output", line))

    def read(self, plans: Plans, *, at_rest: bool = False) -> tuple[list[Entry], str]:
        """Return the entries since the last call, or only the last of them, and the end of the model's
        current output. Its last word is shown when it is complete: it may be half a secret. The output of a
        plan that is `at_rest` is complete: then it is an entry.
        """
        while pieces := plans.output(self._plan_id, after=self._number, limit=_PAGE):
            for piece in pieces:
                self._number = piece.number
                self._take(piece.kind, piece.text)
            if len(pieces) < _PAGE:
                break
        if at_rest:
            self._end_answer()
        entries = [*self._new]
        self._new.clear()
        return entries, self._end

    def _take(self, kind: str, text: str) -> None:
        if kind == "model":
            self._say(self._mask.feed(text))
            return
        self._end_answer()
        if kind == "output":
            self._output(text.encode("utf-8", "surrogateescape"))
            return
        self._output.finish()
        if kind == "progress":
            for line in text.splitlines():
                self._add("progress", redact_text(line))

    def _end_answer(self) -> None:
        self._say(self._mask.finish())
        answer = "".join(self._said)
        if answer.strip():
            self._add("model", redact_text(_prose(answer)))
        self._said, self._end = [], ""

    def _say(self, masked: str) -> None:
        self._said.append(masked)
        self._end = (self._end + masked)[-_TAIL:]

    def _add(self, kind: Literal["progress", "output", "model"], text: str) -> None:
        self._new.append(Entry(kind, text))


def _prose(answer: str) -> str:
    """Return the JSON of a strategist or reviewer as Markdown, and any other answer as it is."""
    try:
        data = json.loads(answer.strip().removeprefix("```json").removesuffix("```"))
    except (ValueError, RecursionError):
        return answer
    heads = isinstance(data, dict) and [data[name] for name in _HEADS if isinstance(data.get(name), str)]
    if not heads or not data.keys() <= {*_HEADS, *_LISTS}:
        return answer
    lines = [*heads]
    for name in _LISTS:
        items = data[name] if isinstance(data.get(name), list) else []
        said = [text for text in map(_item, items) if text]
        lines += [f"{name.capitalize()}:\n\n" + "\n".join(f"- {text}" for text in said)] if said else []
    return "\n\n".join(lines)


def _item(item: object) -> str:
    if not isinstance(item, dict):
        return item if isinstance(item, str) else ""
    texts: dict[object, str] = {name: text for name, text in item.items() if isinstance(text, str)}
    what = next((texts.pop(name) for name in _TEXTS if name in texts), "")
    choice = texts.pop("choice", "")
    main = f"{what} → {choice}" if what and choice else what or choice
    return "; ".join([*([main] if main else []), *texts.values()])


class OutputLog(RichLog):
    """A log of entries, laid out a few at a time, so that keys are not delayed. If its width changes, the
    entries are laid out again.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            id=name, wrap=True, min_width=0, markup=False, highlight=False, max_lines=_MOST_LINES
        )
        self._entries: deque[Entry] = deque(maxlen=_MOST_ENTRIES)
        self._to_show: deque[Entry] = deque(maxlen=_MOST_ENTRIES)
        self._showing = False
        self._laid_out = 0

    def add(self, entries: list[Entry]) -> None:
        """Show more entries."""
        self._entries.extend(entries)
        self._to_show.extend(entries)
        if not self._showing:
            self._show_some()

    def on_resize(self, event: events.Resize) -> None:
        if self._laid_out not in (0, event.size.width):
            self.clear()
            self._to_show = self._entries.copy()
            if not self._showing:
                self._show_some()
        self._laid_out = event.size.width

    def _show_some(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._to_show))):
            self._show(self._to_show.popleft())
        self._showing = bool(self._to_show)
        if self._showing:
            call_after(self, _PAUSE_SECONDS, self._show_some)

    def _show(self, entry: Entry) -> None:
        if entry.kind == "model":
            self.write(formatted(entry.text))
        else:
            for line in continued(visible(entry.text)):
                self.write(Text(line, style="dim" if entry.kind == "output" else ""))
