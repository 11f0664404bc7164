"""A long answer of the terminal app: laid out in sections, but it looks the same."""

from __future__ import annotations

import asyncio

import pytest
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll

from cleveragents.cli.terminal_app.turn_block import AnswerSection, TurnBlock, next_section
from tests.terminal_bench import text_of

LONG = "word " * 1_200 + "\n\n"
KINDS = """
# Heading

A paragraph with `code` and **bold** text.

- one

  still one
- two
  - below

After the list.

```python
first = 1

second = 2
```

1. first
2. second

> A quotation.

> Another quotation.

Before a table.

| a | b |
|---|---|
| 1 | 2 |

## Smaller heading

Text.

Setext heading
==============

Text again.

    indented = True

    still_indented = True

---

The end of this part.

"""


class Answer(App[None]):
    """One turn, on a screen that shows all of it."""

    def __init__(self, answer: str = "") -> None:
        super().__init__()
        self.block = TurnBlock("question", answer)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield self.block


def shown(answer: str, pieces: list[str] | None = None) -> tuple[str, list[int]]:
    """Return the screen with this answer, streamed if there are pieces, and the blocks of each section."""

    async def run() -> tuple[str, list[int]]:
        app = Answer("" if pieces else answer)
        async with app.run_test(size=(90, 700)) as pilot:
            for piece in pieces or ():
                await app.block.add(piece)
            await pilot.pause()
            assert app.block.answer == answer
            sections = app.block.query(AnswerSection)
            return text_of(app.screen), [len(section.children) for section in sections]

    return asyncio.run(run(), debug=False)


def test_a_streamed_answer_of_several_sections_looks_like_one() -> None:
    answer, size = KINDS * 16, 97
    whole, one = shown(answer)
    streamed, several = shown(answer, [answer[at : at + size] for at in range(0, len(answer), size)])
    assert len(one) == 1
    assert len(several) > 1
    assert streamed == whole


def test_the_sections_of_a_long_answer_have_few_blocks() -> None:
    answer = "".join(f"Paragraph {number} has a few words.\n\n" for number in range(600))
    _, blocks = shown(answer, [answer[at : at + 500] for at in range(0, len(answer), 500)])
    assert sum(blocks) == 600
    assert max(blocks) < 200, "Textual lays out all blocks of a section with each piece"


@pytest.mark.parametrize(
    ("section", "piece", "start"),
    [
        ("short\n\n", "next", None),
        (LONG, "next", 0),
        (LONG, "- item", 0),
        (LONG, "end\n\nnext\n\nlater", 0),
        (LONG + "begun", " end\n\nnext", 6),
        (LONG + "begun", " end\nstill\n\nnext", 12),
        (LONG + "begun", " end\n\n", None),
        (LONG, "# Heading", None),
        (LONG + "# Heading\n\n", "next", None),
        (LONG + "- item\n\n", "  still the item", None),
        (LONG + "- item\n\n", "next", None),
        (LONG + "```\ncode\n\n", "still code\n\nmore code", None),
        (LONG + "> quotation\n\n", "next\n\nafter it", 6),
        (LONG, "", None),
    ],
)
def test_a_section_begins_only_after_a_paragraph(section: str, piece: str, start: int | None) -> None:
    assert next_section(section, piece) == start
