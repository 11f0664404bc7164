"""The board: the plans of all repositories, those that need a person first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from cleveragents.api.format import ago
from cleveragents.cli.plan.exit_codes import short_ids
from cleveragents.cli.plan.list import repository_name
from cleveragents.cli.render.board_row import COLOURS
from cleveragents.core.text.control_characters import escape_controls
from cleveragents.plans.model.status import PlanStatus

if TYPE_CHECKING:
    from cleveragents.api.plans.summary import PlanSummary

__all__ = ["GROUPS", "PlanBoard", "PlanChosen", "group_of", "grouped"]

GROUPS = {
    "needs": "Needs you",
    "review": "Ready for review",
    "running": "Running",
    "waiting": "Queued",
    "done": "Done",
}
"""The groups in the order of the board, with their headings: the same as on the page."""

_GROUP_OF = {
    PlanStatus.QUEUED: "waiting",
    PlanStatus.PLANNING: "running",
    PlanStatus.RUNNING: "running",
    PlanStatus.APPLYING: "running",
    PlanStatus.WAITING: "needs",
    PlanStatus.PAUSED: "needs",
    PlanStatus.BLOCKED: "needs",
    PlanStatus.FAILED: "needs",
    PlanStatus.READY: "review",
}
_ASKING = ("needs", "review")
_URGENCY = ("approval", "question", "budget", "conflict", "error", "review")
_MOST_DONE = 20
_AGE_SECONDS = 10.0
"""Ended plans on the board; `agents plan list` lists all of them."""


class PlanChosen(Message):
    """The user opened a plan of the board."""

    def __init__(self, plan_id: str) -> None:
        super().__init__()
        self.plan_id = plan_id


def group_of(plan: PlanSummary) -> str:
    """Return the group of the plan. An apply with an unknown outcome needs a person."""
    if plan.parked_until is not None:  # a usage limit, not a person
        return "waiting"
    if plan.status is PlanStatus.APPLYING and plan.needs:
        return "needs"
    return _GROUP_OF.get(plan.status, "done")


def grouped(plans: Sequence[PlanSummary]) -> dict[str, list[PlanSummary]]:
    """Return the plans of each group, by urgency, then by the latest change."""
    found: dict[str, list[PlanSummary]] = {name: [] for name in GROUPS}
    for plan in sorted(plans, key=lambda plan: (plan.updated, plan.id), reverse=True):
        found[group_of(plan)].append(plan)
    for rows in found.values():
        rows.sort(key=_urgency)
    found["done"] = found["done"][:_MOST_DONE]
    return found


def _urgency(plan: PlanSummary) -> int:
    return _URGENCY.index(plan.needs) if plan.needs in _URGENCY else len(_URGENCY)


class PlanBoard(OptionList):
    """The list of plans. Enter opens the highlighted plan."""

    DEFAULT_CSS: ClassVar[str] = """
    PlanBoard { text-wrap: nowrap; text-overflow: ellipsis; }
    PlanBoard > .option-list--option-disabled { color: $text; }  /* the headings */
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Open plan")]

    def __init__(self) -> None:
        super().__init__(id="board", markup=False)
        self._shown: list[tuple[str | None, str]] = []
        self.plans: dict[str, PlanSummary] = {}

    def on_mount(self) -> None:
        self.set_interval(_AGE_SECONDS, self.update_ages)

    def update_ages(self) -> None:
        """Update the column that shows how long ago each plan changed."""
        if self.plans:
            self.show(list(self.plans.values()), datetime.now(UTC))

    @property
    def plan_id(self) -> str | None:
        """The highlighted plan."""
        option = self.highlighted_option
        return None if option is None else option.id

    def show(self, plans: Sequence[PlanSummary], now: datetime) -> bool:
        """Show these plans, and return whether a row changed. The highlighted plan stays highlighted. If it
        does not need a person any more, the next plan that does is highlighted.
        """
        kept = self._kept(plans)
        self.plans = {plan.id: plan for plan in plans}
        rows = _rows(plans, now)
        content = [(plan_id, text.markup) for plan_id, text in rows]
        if content == self._shown:
            return False
        same = [one for one, _ in content] == [one for one, _ in self._shown]
        if same:
            for place, ((_, before), (_, after)) in enumerate(zip(self._shown, content, strict=True)):
                if before != after:
                    self.replace_option_prompt_at_index(place, rows[place][1])
        else:
            self.set_options([Option(text, id=one, disabled=one is None) for one, text in rows])
            places = [place for place, (one, _) in enumerate(rows) if one is not None]
            known = next((place for place in places if rows[place][0] == kept), None)
            self.highlighted = known if known is not None else next(iter(places), None)
        self._shown = content
        return True

    def _kept(self, plans: Sequence[PlanSummary]) -> str | None:
        """Return the plan to highlight when these plans are shown."""
        known, groups = self.plan_id, grouped(plans)
        asking = [plan.id for name in _ASKING for plan in groups[name]]
        before = [one for one, _ in self._shown if one in self.plans and group_of(self.plans[one]) in _ASKING]
        if known not in before or known in asking:
            return known
        later = [one for one in before[before.index(known) :] if one in asking]
        return next(iter([*later, *asking]), known)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option.id is not None:
            self.post_message(PlanChosen(event.option.id))


def _rows(plans: Sequence[PlanSummary], now: datetime) -> list[tuple[str | None, Text]]:
    """Return the rows, headings without an id included."""
    shorts = short_ids([plan.id for plan in plans]) if plans else {}
    rows: list[tuple[str | None, Text]] = []
    for name, found in grouped(plans).items():
        if found:
            rows.append((None, Text(f"{GROUPS[name]} · {len(found)}", style="bold")))
        rows += [(plan.id, _row(plan, shorts[plan.id], now)) for plan in found]
    return rows or [(None, Text("No plans yet.", style="dim"))]


def _row(plan: PlanSummary, short: str, now: datetime) -> Text:
    asks = plan.needs if plan.status is PlanStatus.WAITING else None
    label = asks or plan.label or plan.status.value
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(escape_controls(label), style=COLOURS.get(plan.status, ""))
    text.append(f"  {escape_controls(plan.title)}\n")
    facts = (short, escape_controls(repository_name(plan)), ago(plan.updated, now))
    text.append(f"  {' · '.join(facts)}", style="dim")
    return text
