"""A turn of the conversation on the screen: the question, and the answer as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from markdown_it import MarkdownIt
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Markdown, Static

from cleveragents.cli.terminal_app.notices import plain
from cleveragents.conversations.model import TurnState

if TYPE_CHECKING:
    from cleveragents.api.conversations.client import TurnView

__all__ = ["TurnBlock", "ended_text"]


def parser() -> MarkdownIt:
    """Return a parser that keeps text which looks like HTML, such as `List<String>`, and makes no links of
    bare addresses.
    """
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


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
        self.answer = plain(answer)

    def compose(self) -> ComposeResult:
        yield Static(Text(f"> {plain(self._question)}"), classes="question", markup=False)
        yield Markdown(self.answer, parser_factory=parser, open_links=False)
        yield Static(Text(plain(self._state)), classes="state", markup=False)

    async def add(self, text: str) -> None:
        """Append a piece of the answer."""
        self.answer += plain(text)
        await self.query_one(Markdown).append(plain(text))

    async def finish(self, turn: TurnView) -> None:
        """Show how the turn ended, and the whole answer if none of it was streamed."""
        if turn.answer and not self.answer:
            await self.add(turn.answer)
        self.query_one(".state", Static).update(Text(plain(ended_text(turn))))


def ended_text(turn: TurnView) -> str:
    """Return how a turn ended and the plans it started; empty for a plain answer."""
    lines = [f"plan {plan_id}" for plan_id in turn.plans]
    if turn.state not in (TurnState.ANSWERED, TurnState.RUNNING):
        why = f": {turn.error}" if turn.error else ""
        lines.append(f"{turn.state.value}{why}\nEnter on an empty prompt continues; or type a message.")
    return "\n".join(lines)
