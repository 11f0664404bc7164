"""The review of a result: its files and hunks, accepted or left out, comments on lines, then the apply."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from cleveragents.api.views import every
from cleveragents.cli.plan.view import summary_of
from cleveragents.cli.terminal_app.action_screen import ActionScreen
from cleveragents.cli.terminal_app.client_screen import BREAKPOINTS, KeyLine, visible
from cleveragents.cli.terminal_app.diff_view import (
    DiffRow,
    FileDiff,
    coloured,
    file_mark,
    rows_of,
    with_colours_of,
)

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from cleveragents.api.client import Client
    from cleveragents.api.plans.detail_views import CommentView, DiffView, FileDiffView
    from cleveragents.api.plans.views import PlanView

__all__ = ["ReviewScreen"]

_LETTERS = {"created": "A", "changed": "M", "deleted": "D"}


@dataclass(frozen=True, slots=True)
class _ReviewFacts:
    """A plan with its diff and comments, as read in one go."""

    plan: PlanView
    diff: DiffView
    comments: Sequence[CommentView]


class ReviewScreen(ActionScreen[_ReviewFacts]):
    """The files of a result, and the diff of one of them. Space accepts a file or hunk or leaves it out."""

    DEFAULT_CSS = """
    ReviewScreen #summary { padding: 0 1; background: $panel; }
    ReviewScreen #panes { layout: horizontal; height: 1fr; }
    ReviewScreen #files { width: 34; height: 1fr; border: none; padding: 0; }
    ReviewScreen.-narrow #panes { layout: vertical; }
    ReviewScreen.-narrow #files { width: 1fr; height: auto; max-height: 6; }
    """
    HORIZONTAL_BREAKPOINTS = BREAKPOINTS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "decide", "Accept or leave out"),
        Binding("f", "decide_file", "Whole file"),
        Binding("n", "hunk(1)", "Next hunk"),
        Binding("p", "hunk(-1)", "Previous"),
        Binding("m", "comment", "Comment"),
        Binding("tab", "switch", "Files / diff"),
        Binding("g", "act('revise')", "Request changes"),
        Binding("A", "act('apply')", "Apply"),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self, client: Client, plan_id: str) -> None:
        super().__init__(client, plan_id)
        self._files: Sequence[FileDiffView] = ()
        self._comments: Sequence[CommentView] = ()
        self._shown = ""
        """The path of the shown file."""
        self._deciding = False
        self._judged = False
        """Whether the user has accepted or left out something since the result last changed."""

    def compose(self) -> ComposeResult:
        yield Static("Loading …", id="summary", markup=False)
        with Container(id="panes"):
            yield OptionList(id="files", markup=False)
            yield FileDiff("diff")
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one(FileDiff).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the plan offers the action."""
        if action == "act":
            return self.offers(str(parameters[0]))
        if action in ("decide", "decide_file"):
            return self.offers("review") and bool(self._files)
        return action not in ("hunk", "comment") or bool(self._files)

    def read(self) -> _ReviewFacts:
        plans = self.client.plans
        plan = plans.get(self.plan_id)
        diff = plans.diff(plan.id)
        return _ReviewFacts(plan, diff, [*every(lambda after: plans.comments(plan.id, after=after))])

    def show(self, facts: _ReviewFacts) -> None:
        plan = self.plan = facts.plan
        changed = self.seen not in (None, facts.diff.tree)
        if changed and not self._judged:  # guard: part of the old diff may have been read
            self.inform("The result has changed. Look at the new diff before you apply it.", failed=True)
        self._judged = self._judged and not changed
        self.seen = facts.diff.tree
        self._files, self._comments = facts.diff.files, facts.comments
        applied = summary_of(plan) if plan.changes else "nothing"
        problems = [one for one in (plan.review_problem, *_lapsed(plan)) if one]
        problems += ["not all files are shown"] if len(plan.changes) > len(self._files) else []
        now = plan.status.value if plan.state.ended else "to be applied"
        heading = [f"Review: {plan.title}", f"{now}: {applied}", *problems]
        self.query_one("#summary", Static).update(Content(visible("\n".join(heading))))
        files = self.query_one("#files", OptionList)
        paths = [file.path for file in self._files]
        chosen = paths.index(self._shown) if self._shown in paths else 0
        with self.prevent(OptionList.OptionHighlighted):
            files.clear_options()
            files.add_options([Option(_file_line(file)) for file in self._files])
            files.highlighted = chosen if paths else None
        self._show_file(chosen)

    def show_unread(self) -> None:
        self._files = ()
        self.query_one("#summary", Static).update("The diff cannot be read.")

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._show_file(event.option_index)

    def on_option_list_option_selected(self) -> None:
        self.query_one(FileDiff).focus()

    def action_switch(self) -> None:
        files, diff = self.query_one("#files"), self.query_one(FileDiff)
        (files if diff.has_focus else diff).focus()

    def action_act(self, name: str) -> None:
        self.ask(name)

    def action_hunk(self, step: int) -> None:
        """Go to the next or previous hunk, if need be in the next or previous file."""
        diff, files = self.query_one(FileDiff), self.query_one("#files", OptionList)
        if not diff.hunk_from(step) and files.highlighted is not None:
            place = files.highlighted + step
            if 0 <= place < len(self._files):
                files.highlighted = place
        diff.focus()

    def action_decide(self) -> None:
        row, file = self.query_one(FileDiff).row, self._file
        if file is None:
            return
        if not self.query_one(FileDiff).has_focus or row is None or row.hunk is None:
            self.action_decide_file()
            return
        hunk = file.hunks[row.hunk]
        if hunk.id is None:
            left = "The file is left out." if not file.accepted else "This hunk cannot be left out alone."
            self.inform(f"{left} Press f for the whole file.")
            return
        verdict = {"reject_hunks" if hunk.accepted else "accept_hunks": [hunk.id]}
        self._decide(verdict)

    def action_decide_file(self) -> None:
        if self._file is not None:
            accepted = file_mark(self._file) == "[x]"
            self._decide({"reject" if accepted else "accept": [self._file.path]})

    def action_comment(self) -> None:
        row, file = self.query_one(FileDiff).row, self._file
        if file is None or row is None or not row.is_line:
            self.inform("Move to a line of the file to comment on it.")
            return
        removed = row.kind == "remove"
        line, blob = (row.old, file.blob_before) if removed else (row.new, file.blob_after)
        question = self.actions.comment(file.path, line, before=removed, shown=row.text, blob=blob)
        self.open(question, "comment")

    @property
    def _file(self) -> FileDiffView | None:
        return next((file for file in self._files if file.path == self._shown), None)

    def _decide(self, verdict: dict[str, list[str]]) -> None:
        if self._deciding:
            return
        self._deciding = self._judged = True
        self.call(partial(self._reviewed, verdict), self._decided, self._not_decided)

    def _reviewed(self, verdict: dict[str, list[str]]) -> PlanView:
        return self.client.plans.review(self.plan_id, **verdict)

    def _decided(self, plan: PlanView) -> None:
        self._deciding = False
        self.reload()

    def _not_decided(self, error: Exception) -> None:
        self._deciding = False
        self.report(error)
        self.reload()

    def _show_file(self, place: int) -> None:
        diff = self.query_one(FileDiff)
        if not self._files:
            self._shown = ""
            diff.show([DiffRow("note", "No changes.")])
            return
        file = self._files[place]
        keep, self._shown = file.path == self._shown, file.path
        command = f"{self.prefix} plan diff {self.plan_id} {shlex.quote(file.path)}"
        rows = rows_of(file, self._comments, command)
        rows = with_colours_of(diff.rows, rows) if keep else rows
        diff.show(rows, keep=keep)
        dark = self.app.current_theme.dark
        self.call(partial(coloured, file.path, rows, dark=dark), partial(self._colour, rows))

    def _colour(self, rows: list[DiffRow], result: list[DiffRow]) -> None:
        diff = self.query_one(FileDiff)
        if diff.rows is rows:
            diff.show(result, keep=True)


def _file_line(file: FileDiffView) -> Content:
    size = "binary" if file.added is None else f"+{file.added} -{file.removed}"
    return Content(
        visible(f"{file_mark(file)} {_LETTERS[file.change]} {size} {file.path}".replace("\n", " "))
    )


def _lapsed(plan: PlanView) -> list[str]:
    return [name for name in plan.left_out if "decide again" in name]
