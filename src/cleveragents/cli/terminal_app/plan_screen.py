"""The screen of one plan: its goal and status, what it needs, its live output, and its actions.

The actions are those that the API offers for the plan. Each opens a dialog that shows what will happen. The
plan is read again when it changes; while it runs, its output is read at short intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from cleveragents.api.views import every
from cleveragents.cli.terminal_app.action_screen import ActionScreen
from cleveragents.cli.terminal_app.client_screen import BREAKPOINTS, KeyLine, formatted, visible
from cleveragents.cli.terminal_app.dialogs import PickDialog
from cleveragents.cli.terminal_app.plan_actions import ACTIONS
from cleveragents.cli.terminal_app.plan_text import colour_of, facts_text, request_text
from cleveragents.cli.terminal_app.transcript import Entry, OutputLog, Transcript

if TYPE_CHECKING:
    from rich.markdown import Markdown
    from rich.text import Text
    from textual.app import ComposeResult

    from cleveragents.api.client import Client
    from cleveragents.api.plans.detail_views import DecisionNode
    from cleveragents.api.plans.summary import PlanSummary
    from cleveragents.api.plans.views import PlanView

__all__ = ["PlanScreen"]

_LOOK_SECONDS = 0.5
_MOST_TICKS = 60
_SAID_LINES = 4


@dataclass(frozen=True, slots=True)
class _Page:
    """A plan with its texts, as read in one go."""

    plan: PlanView
    text: Content
    answer: Markdown | Text | None


class PlanScreen(ActionScreen[_Page]):
    """A plan with its actions."""

    DEFAULT_CSS = """
    PlanScreen #status { padding: 0 1; background: $panel; }
    PlanScreen #goal { padding: 0 1; max-height: 4; text-style: bold; }
    PlanScreen #details { width: 1fr; height: 1fr; padding: 0 1; }
    PlanScreen #request { color: $text-warning; padding: 0 0 1 0; }
    PlanScreen #answer { padding: 0 0 1 0; }
    PlanScreen #live { width: 1fr; height: 1fr; border-left: solid $panel; }
    PlanScreen #output { height: 1fr; padding: 0 1; background: $background; overflow-y: auto; }
    PlanScreen #said { max-height: 4; padding: 0 1; color: $text-muted; }
    PlanScreen #panes { layout: horizontal; height: 1fr; }
    PlanScreen.-narrow #panes { layout: vertical; }
    PlanScreen.-narrow #live { border-left: none; border-top: solid $panel; }
    """
    HORIZONTAL_BREAKPOINTS = BREAKPOINTS
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(action.key, f"act('{action.name}')", action.label) for action in ACTIONS),
        Binding("m", "comment", "Comment"),
        Binding("s", "sub_plan", "Sub-plan"),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self, client: Client, plan_id: str) -> None:
        super().__init__(client, plan_id)
        self._reading = False
        self._ticks = self._failures = 0
        self._transcript: Transcript | None = None
        self._standing: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield Static("Loading …", id="status", markup=False)
        yield Static("", id="goal", markup=False)
        with Container(id="panes"):
            with VerticalScroll(id="details"):
                yield Static("", id="request", markup=False)
                yield Static("", id="answer", markup=False)
                yield Static("", id="facts", markup=False)
            with Vertical(id="live"):
                yield OutputLog("output")
                yield Static("", id="said", markup=False)
        yield KeyLine()

    def on_mount(self) -> None:
        self.query_one("#details").focus()
        self.set_interval(_LOOK_SECONDS, self._look)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the plan offers the action."""
        if action == "act":
            return self.offers(str(parameters[0]))
        if action == "sub_plan":
            return self.plan is not None and any(part.id for part in self.plan.sub_plans)
        return action != "comment" or self.plan is not None

    def action_act(self, name: str) -> None:
        if name == "review":
            self._review()
        elif name == "correct":
            self.prepare(self.actions.decisions, self._pick_decision)
        else:
            self.ask(name)

    def action_comment(self) -> None:
        self.open(self.actions.comment(), "comment")

    def show_changed(self) -> None:
        self._review()

    def _review(self) -> None:
        from cleveragents.cli.terminal_app.review_screen import ReviewScreen

        review = ReviewScreen(self.client, self.plan_id)

        def seen(closed: None) -> None:
            self.seen = review.seen or self.seen

        self.app.push_screen(review, seen)

    def action_sub_plan(self) -> None:
        parts = [] if self.plan is None else [part for part in self.plan.sub_plans if part.id]

        def opened(index: int | None) -> None:
            if index is not None:
                self.app.push_screen(PlanScreen(self.client, str(parts[index].id)))

        lines = [f"{part.status}  {part.name}" for part in parts]
        self.app.push_screen(PickDialog("Open a sub-plan", lines), opened)

    def read(self) -> _Page:
        plans = self.client.plans
        plan = plans.get(self.plan_id)
        decisions = [*every(lambda after: plans.decisions(plan.id, after=after))]
        comments = [*every(lambda after: plans.comments(plan.id, after=after))]
        answer = formatted(plan.answer) if plan.answer else None
        return _Page(plan, facts_text(plan, decisions, comments, self.prefix), answer)

    def show(self, facts: _Page) -> None:
        plan = self.plan = facts.plan
        self.query_one("#status", Static).update(Content(visible(plan.meaning)).stylize(colour_of(plan)))
        self.query_one("#goal", Static).update(Content(visible(plan.goal.strip())))
        asked = request_text(plan)
        request = self.query_one("#request", Static)
        request.update(Content(asked))
        request.display = bool(asked)
        answer = self.query_one("#answer", Static)
        answer.update(facts.answer or "")
        answer.display = facts.answer is not None
        self.query_one("#facts", Static).update(facts.text)
        self._look_at_output()

    def show_unread(self) -> None:
        if self.plan is None:
            self.query_one("#status", Static).update("The plan cannot be read.")

    def _look(self) -> None:
        """Read new output of a running plan. After a failure, the next attempts wait longer and longer."""
        self._ticks += 1
        due = self._ticks % min(2**self._failures, _MOST_TICKS) == 0
        if self.plan is not None and due and (self._failures or not self.plan.at_rest):
            self._look_at_output()

    def _look_at_output(self) -> None:
        if self._reading:
            return
        self._reading = True
        transcript = self._transcript = self._transcript or Transcript(self.plan_id)
        plans, plan_id = self.client.plans, self.plan_id

        def read() -> tuple[PlanSummary, list[Entry], str]:
            summary = plans.summary(plan_id)  # before the output, or its end is missed
            return summary, *transcript.read(plans, at_rest=summary.at_rest)

        self.call(read, self._show_output, self._output_lost)

    def _show_output(self, found: tuple[PlanSummary, list[Entry], str]) -> None:
        self._reading = False
        self._failures = 0
        summary, entries, said = found
        self.query_one(OutputLog).add(entries)
        tail = [line for line in visible(said).splitlines() if line.strip()][-_SAID_LINES:]
        self.query_one("#said", Static).update(Content("\n".join(tail)))
        standing = summary.version, summary.phase, summary.state, summary.status, summary.at_rest
        if standing != self._standing:
            self._standing = standing
            self.reload()

    def _output_lost(self, error: Exception) -> None:
        self._reading = False
        self._failures += 1
        if self._failures == 1:
            self.report(error)

    def _pick_decision(self, decisions: list[DecisionNode]) -> None:
        def picked(index: int | None) -> None:
            if index is not None:
                number = decisions[index - 1].number if index else None
                self.prepare(partial(self.actions.correction, number), partial(self.open, name="correct"))

        known = (f"{one.number}. {one.question} → {one.choice}" for one in decisions)
        lines = ["Add guidance; undo nothing", *known]
        self.app.push_screen(PickDialog("Correct which decision?", lines), picked)
