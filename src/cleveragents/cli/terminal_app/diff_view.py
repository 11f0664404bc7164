"""The diff of one file as a widget: line by line, with a cursor, syntax colours and comments.

Only the visible lines are drawn, so the number of lines does not matter. Syntax colours are computed in a
worker thread, within limits: a regular expression of a lexer may take long for a hostile line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from cleveragents.api.format import counted
from cleveragents.cli.plan.comment import comment_lines
from cleveragents.cli.terminal_app.client_screen import visible

if TYPE_CHECKING:
    from rich.syntax import Syntax, SyntaxTheme
    from textual import events

    from cleveragents.api.plans.detail_views import CommentView, FileDiffView, HunkView

__all__ = ["DiffRow", "FileDiff", "coloured", "file_mark", "rows_of", "with_colours_of"]

_MARKS = {"context": " ", "add": "+", "remove": "-"}
_GUTTER = 6
_LONGEST_COLOURED_LINE = 400
_MOST_COLOURED = 300_000
"""Maximum number of characters in a file with syntax colours."""

_Pieces = tuple[tuple[str, Style], ...]


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A line on the screen: of the file, the header of a hunk, a comment or a note."""

    kind: Literal["context", "add", "remove", "hunk", "comment", "note"]
    text: str
    hunk: int | None = None
    """The index of the hunk."""
    old: int | None = None
    new: int | None = None
    accepted: bool = True
    pieces: _Pieces = ()
    """The text with its syntax colours, if there are any."""

    @property
    def is_line(self) -> bool:
        """Whether this is a line of the file, which can be commented on."""
        return self.kind in _MARKS


def file_mark(file: FileDiffView) -> str:
    """Return the verdict on a file: `[x]` accepted, `[~]` in part, `[ ]` left out."""
    if not file.accepted:
        return "[ ]"
    return "[x]" if all(hunk.accepted for hunk in file.hunks) else "[~]"


def rows_of(file: FileDiffView, comments: Sequence[CommentView], show: str) -> list[DiffRow]:
    """Return the rows of a file. `show` is the command that shows a diff that is too large for the screen."""
    about = [one for one in comments if one.path == file.path]
    rows = [row for one in about if one.outdated for row in _comment_rows(one)]
    if file.binary:
        rows.append(DiffRow("note", f"Binary file, {file.change}. Accept it or leave it out as a whole."))
    elif file.truncated:
        size = counted((file.added or 0) + (file.removed or 0), "changed line")
        rows.append(DiffRow("note", f"Too large to show: {size}. Show them with `{show}`."))
    elif not file.hunks:
        rows.append(DiffRow("note", f"No changed lines: the file was {file.change}."))
    placed = [one for one in about if not one.outdated]
    for number, hunk in enumerate(file.hunks):
        rows += _hunk_rows(number, hunk, len(file.hunks), placed)
    shown = {one.number for one in _within(file, placed)}
    rows += [row for one in placed if one.number not in shown for row in _comment_rows(one)]
    return rows


def _within(file: FileDiffView, comments: Sequence[CommentView]) -> Iterator[CommentView]:
    """Yield the comments on lines that the diff shows."""
    lines = {("before", line.old) for hunk in file.hunks for line in hunk.lines if line.old}
    lines |= {("after", line.new) for hunk in file.hunks for line in hunk.lines if line.new}
    yield from (one for one in comments if (one.side, one.end_line) in lines)


def _hunk_rows(number: int, hunk: HunkView, of: int, comments: Sequence[CommentView]) -> Iterator[DiffRow]:
    verdict = "[x] hunk" if hunk.accepted else "[ ] left out: hunk"
    header = f"{verdict} {number + 1} of {of}  {hunk.header}"
    yield DiffRow("hunk", visible(header).replace("\n", " "), number, accepted=hunk.accepted)
    for line in hunk.lines:
        text = visible(line.text.replace("\n", "\\n"))
        yield DiffRow(line.kind, text, number, line.old, line.new, hunk.accepted)
        for one in comments:
            if one.end_line == (line.old if one.side == "before" else line.new):
                yield from (replace(row, hunk=number) for row in _comment_rows(one))


def _comment_rows(comment: CommentView) -> Iterator[DiffRow]:
    for line in comment_lines(comment):
        yield DiffRow("comment", line)


def coloured(path: str, rows: Sequence[DiffRow], *, dark: bool) -> list[DiffRow]:
    """Return the rows with syntax colours; unchanged if the language is unknown or there is too much text."""
    from rich.syntax import Syntax

    if sum(len(row.text) for row in rows) > _MOST_COLOURED:
        return list(rows)
    language = Syntax("", Syntax.guess_lexer(path))
    if language.lexer is None:
        return list(rows)
    theme = Syntax.get_theme("ansi_dark" if dark else "ansi_light")
    result, hunks = list(rows), dict[int | None, list[int]]()
    for place, row in enumerate(rows):
        hunks.setdefault(row.hunk, []).append(place)
    for hunk in hunks.values():
        for kinds in (("context", "remove"), ("context", "add")):  # context has the colours of the new side
            places = [place for place in hunk if rows[place].kind in kinds]
            texts = [rows[place].text for place in places]
            for place, pieces in zip(places, _lexed(language, theme, texts), strict=False):
                result[place] = replace(result[place], pieces=pieces)
    return result


def with_colours_of(before: Sequence[DiffRow], rows: Sequence[DiffRow]) -> list[DiffRow]:
    """Return the rows with the colours that equal lines had before."""
    known = {(row.kind, row.old, row.new, row.text): row.pieces for row in before}
    return [replace(row, pieces=known.get((row.kind, row.old, row.new, row.text), ())) for row in rows]


def _lexed(language: Syntax, theme: SyntaxTheme, texts: Sequence[str]) -> list[_Pieces]:
    """Return the lines in coloured pieces; empty if a line is too long or the lexer changes a line."""
    if language.lexer is None or any(len(text) > _LONGEST_COLOURED_LINE for text in texts):
        return []
    lines: list[list[tuple[str, Style]]] = [[]]
    for token, value in language.lexer.get_tokens("\n".join(texts)):
        first, *others = value.split("\n")
        style = theme.get_style_for_token(token)
        lines[-1] += [(first, style)] if first else []
        lines += [[(other, style)] if other else [] for other in others]
    lines = lines[: len(texts)]  # a lexer adds a line break at the end
    spelt = ["".join(text for text, _ in line) for line in lines]
    return [tuple(line) for line in lines] if spelt == list(texts) else []


class FileDiff(ScrollView, can_focus=True):
    """The diff of a file, with a cursor on one row."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "diff--add", "diff--remove", "diff--context", "diff--hunk", "diff--comment", "diff--note",
        "diff--left-out", "diff--cursor", "diff--gutter",
    }  # fmt: skip
    DEFAULT_CSS = """
    FileDiff { height: 1fr; background: $background; }
    FileDiff .diff--add { background: $success-muted; }
    FileDiff .diff--remove { background: $error-muted; }
    FileDiff .diff--hunk { color: $text-accent; text-style: bold; }
    FileDiff .diff--comment { color: $text-warning; }
    FileDiff .diff--note { color: $text-muted; }
    FileDiff .diff--left-out { text-style: dim; }
    FileDiff .diff--gutter { color: $text-muted; }
    FileDiff .diff--cursor { background: $block-cursor-blurred-background; }
    FileDiff:focus .diff--cursor { background: $block-cursor-background; color: $block-cursor-foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "move(-1000000000)", "Begin", show=False),
        Binding("end", "move(1000000000)", "End", show=False),
        Binding("left", "scroll_left", "Left", show=False),
        Binding("right", "scroll_right", "Right", show=False),
    ]
    cursor: reactive[int] = reactive(0)

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.rows: list[DiffRow] = []

    @property
    def row(self) -> DiffRow | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.rows else None

    def show(self, rows: list[DiffRow], *, keep: bool = False) -> None:
        """Show these rows. With `keep`, the cursor stays where it is, if there is such a row."""
        self.rows = rows
        widest = max((cell_len(_shown(row.text)) for row in rows), default=0)
        self.virtual_size = Size(widest + _GUTTER + 3, len(rows))
        self.cursor = min(self.cursor, max(0, len(rows) - 1)) if keep else 0
        if not keep:
            self.scroll_home(animate=False)
        self.refresh()

    def hunk_from(self, step: int) -> bool:
        """Move the cursor to the next or previous hunk. Return whether there is one."""
        heads = [place for place, row in enumerate(self.rows) if row.kind == "hunk"]
        after = [place for place in heads if place > self.cursor]
        before = [place for place in heads if place < self.cursor]
        found = after[:1] if step > 0 else before[-1:]
        if found:
            self.cursor = found[0]
        return bool(found)

    def action_move(self, step: int) -> None:
        self.cursor = max(0, min(len(self.rows) - 1, self.cursor + step))

    def action_page(self, step: int) -> None:
        self.action_move(step * max(1, self.size.height - 1))

    def on_click(self, event: events.Click) -> None:
        self.action_move(event.y + self.scroll_offset.y - self.cursor)

    def watch_cursor(self, cursor: int) -> None:
        self.scroll_to_region(Region(self.scroll_offset.x, cursor, 1, 1), animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen."""
        left, top = self.scroll_offset
        place, width = y + top, self.size.width
        if place >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        row = self.rows[place]
        base = self._style_of(row, place)
        strip = Strip([*self._gutter(row, base), *_segments(row, base)])
        return strip.crop_extend(left, left + width, base)

    def _style_of(self, row: DiffRow, place: int) -> Style:
        style = self.rich_style + self.get_component_rich_style(f"diff--{row.kind}", partial=True)
        if not row.accepted:
            style += self.get_component_rich_style("diff--left-out", partial=True)
        if place == self.cursor:
            style += self.get_component_rich_style("diff--cursor", partial=True)
        return style

    def _gutter(self, row: DiffRow, base: Style) -> list[Segment]:
        if not row.is_line:
            return []
        number = row.old if row.kind == "remove" else row.new
        muted = base + self.get_component_rich_style("diff--gutter", partial=True)
        return [Segment(f"{number or '':>{_GUTTER}} ", muted), Segment(f"{_MARKS[row.kind]} ", base)]


def _segments(row: DiffRow, base: Style) -> list[Segment]:
    if not row.pieces or not row.accepted:
        return [Segment(_shown(row.text), base)]
    return [
        Segment(_shown(text), base + Style(color=style.color, bold=style.bold)) for text, style in row.pieces
    ]


def _shown(text: str) -> str:
    """Return the text on one line, without control characters: the name of a file may contain any."""
    return visible(text).replace("\n", "\\n")
