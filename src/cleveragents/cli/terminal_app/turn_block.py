"""A turn of the conversation on the screen: the question, and the answer as Markdown."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from markdown_it import MarkdownIt
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size
from textual.widgets import Markdown, Static

from cleveragents.cli.render.remedies import prompt_lines
from cleveragents.cli.terminal_app.notices import plain
from cleveragents.conversations.model import TurnState

if TYPE_CHECKING:
    from cleveragents.api.conversations.client import TurnView

__all__ = ["AnswerSection", "TurnBlock", "ended_text", "next_section"]

_SECTION_CHARACTERS = 5_000
"""Textual lays out all blocks of a Markdown widget again with each piece, so a long answer has several."""
_WITHOUT_TOP_MARGIN = ("paragraph_open", "bullet_list_open", "ordered_list_open")
"""Blocks that look the same at the beginning of a section."""


def parser() -> MarkdownIt:
    """Return a parser that keeps text which looks like HTML, such as `List<String>`, and makes no links of
    bare addresses.
    """
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


def next_section(section: str, piece: str) -> int | None:
    """Return where in the next piece of an answer a new section can begin: a block after a paragraph.

    None if the section is short, or if the piece has no such place.
    """
    if len(section) < _SECTION_CHARACTERS or "\n\n" not in section[-2:] + piece:
        return None
    text = section + piece
    first = (section if section.endswith("\n") else f"{section}\n").count("\n")  # line that the piece begins
    blocks = [one for one in parser().parse(text) if one.level == 0 and one.nesting >= 0 and one.map]
    for former, later in pairwise(blocks):
        line = later.map[0] if later.map else 0
        if line >= first and former.type == "paragraph_open" and later.type in _WITHOUT_TOP_MARGIN:
            return sum(len(one) + 1 for one in text.split("\n")[:line]) - len(section)
    return None


class AnswerSection(Markdown):
    """A part of an answer, with blocks whose height does not depend on the height around them."""

    def __init__(self, text: str) -> None:
        super().__init__(text, parser_factory=parser, open_links=False)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        # Without the height of the answer, which grows with each piece, Textual has the layout in its cache.
        return super().get_content_height(container.with_height(0), viewport, width)


class TurnBlock(Vertical):
    """A question and its answer, which may still arrive."""

    DEFAULT_CSS: ClassVar[str] = """
    TurnBlock { height: auto; margin: 0 0 1 0; }
    TurnBlock .question { color: $primary; text-style: bold; padding: 0 1; }
    TurnBlock .state { color: $warning; padding: 0 1; }
    TurnBlock Markdown { padding: 0 1; margin: 0; }
    """

    def __init__(self, question: str, answer: str = "", state: str = "") -> None:
        super().__init__()
        self._question, self._state = question, state
        self.answer = self._section = plain(answer)
        self._markdown = AnswerSection(self.answer)

    def compose(self) -> ComposeResult:
        yield Static(Text(f"> {plain(self._question)}"), classes="question", markup=False)
        yield self._markdown
        yield Static(Text(plain(self._state)), classes="state", markup=False)

    async def add(self, text: str) -> None:
        """Append a piece of the answer."""
        piece = plain(text)
        self.answer += piece
        start = next_section(self._section, piece)
        if start is None:
            self._section += piece
            await self._markdown.append(piece)
            return
        ended, self._section = self._markdown, piece[start:]
        self._markdown = AnswerSection("")
        with self.app.batch_update():  # not a paint between the two
            if start:
                await ended.append(piece[:start])
            await self.mount(self._markdown, after=ended)
            await self._markdown.append(piece[start:])

    async def finish(self, turn: TurnView, prefix: str) -> None:
        """Show how the turn ended, and the whole answer if none of it was streamed."""
        if turn.answer and not self.answer:
            await self.add(turn.answer)
        self.query_one(".state", Static).update(Text(plain(ended_text(turn, prefix))))


def ended_text(turn: TurnView, prefix: str) -> str:
    """Return how a turn ended, its remedies and the plans it started; empty for a plain answer. Commands
    begin with `prefix`.
    """
    lines = [f"plan {plan_id}" for plan_id in turn.plans]
    if turn.state not in (TurnState.ANSWERED, TurnState.RUNNING):
        why = f": {turn.error}" if turn.error else ""
        lines += [f"{turn.state.value}{why}", *prompt_lines(turn.remedies, prefix)]
        lines.append("Enter on an empty prompt continues; or type a message.")
    return "\n".join(lines)
