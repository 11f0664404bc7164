"""The screens of the terminal app as text, in a wide and in a narrow terminal, compared with stored ones.

After a wanted change, `WRITE_SCREENS=1 pytest tests/unit/cli/terminal_app/test_screens.py` stores the screens
in `screens/`; review them as a diff. Colours are not part of them: everything that a screen says is text.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.color import Color as RichColor
from rich.style import Style
from textual.pilot import Pilot

from cleveragents.api.conversations.client import ConversationRequest, TurnView
from cleveragents.api.plans.detail_views import (
    BudgetView,
    CallView,
    CommentView,
    DecisionNode,
    DiffView,
    FileDiffView,
    HunkView,
    LineView,
    OutputView,
    SpentView,
)
from cleveragents.api.plans.views import (
    ApprovalView,
    CallSummary,
    ChangeView,
    CheckView,
    LimitsView,
    PlanView,
    SpendingView,
)
from cleveragents.api.views import Page
from cleveragents.cli.terminal_app.app import TerminalApp
from cleveragents.cli.terminal_app.diff_view import FileDiff
from cleveragents.conversations.model import TurnState
from tests.terminal_bench import text_of, until
from tests.terminal_views import FedEvents, FedSessions, ShownPlans, client_of, example, plan

SCREENS = Path(__file__).with_name("screens")
WAITING, READY = "01KA2W4XJ7GJ5V8TQ3N6Y0ZB1A", "01KA2W4XJ7GJ5V8TQ3N6Y0ZB2B"
FAILED = TurnState.FAILED
LIMITS = LimitsView(usd=0.5, tokens=200_000, steps=100, seconds=1800)
ANSWER = """\
The cookie is signed in `src/session.py:12`:

```python
signed = hmac.new(key, cookie, "sha256")
```

1. The key comes from `settings.py:40`.
2. It changes **daily**.

| file | lines |
|---|---|
| `src/session.py` | 12–18 |
"""

Play = Callable[[Pilot[None], TerminalApp], Awaitable[None]]


class StoredPlans(ShownPlans):
    """Plans with output, decisions, comments, a diff and a pending call."""

    def decisions(self, plan_id: str, **_: object) -> Page[Any]:
        words = {"question": "Which signature?", "choice": "HMAC", "rationale": "It needs no new dependency."}
        return Page(items=(example(DecisionNode, number=1, kind="decision", state="active", **words),))

    def comments(self, plan_id: str, **_: object) -> Page[Any]:
        place = {"path": "src/export.py", "line": 2, "end_line": 2, "state": "open"}
        return Page(items=(example(CommentView, **place),))

    def output(self, plan_id: str, *, after: int, **_: object) -> Any:
        texts = {
            "progress": "step 1 of 2: write the flag\n",
            "output": "12 passed in 0.31s\n",
            "model": "Now ",
        }
        pieces = [example(OutputView, number=n, kind=k, text=t) for n, (k, t) in enumerate(texts.items(), 1)]
        return pieces[after:]

    def diff(self, plan_id: str) -> DiffView:
        lines = [
            example(LineView, kind="context", old=1, new=1, text="def export(rows):"),
            example(LineView, kind="remove", old=2, new=None, text="    print(rows)"),
            example(LineView, kind="add", old=None, new=2, text="    print(json.dumps(rows))"),
        ]
        hunk = example(HunkView, header="@@ -1,2 +1,2 @@", lines=lines)
        changed = example(FileDiffView, path="src/export.py", added=1, removed=1, accepted=True, hunks=[hunk])
        picture = example(
            FileDiffView, path="logo.png", change="created", added=None, removed=None, binary=True
        )
        return DiffView(files=(changed, picture), truncated=False)

    def call(self, plan_id: str, number: int) -> CallView:
        arguments = {"argv": ["pytest", "-q", "tests; rm -rf /"], "timeout_seconds": 60}
        return example(CallView, number=number, tool="command", state="asked", arguments=arguments)

    def budget(self, plan_id: str) -> BudgetView:
        spent = example(SpentView)
        return BudgetView(plan=plan_id, limits=LIMITS, spent=spent, reserved=spent, models=())

    def rebase(self, plan_id: str) -> PlanView:
        return self.get(plan_id)

    resume = rebase


def board_plan(plan_id: str, status: str, goal: str, hours: int, **more: object) -> PlanView:
    updated = datetime.now(UTC) - timedelta(hours=hours, minutes=5)
    changed = {"updated": updated, "label": status, "branch": None}
    phase = "apply" if status == "applied" else "execute"
    states = {"running": "processing", "queued": "queued", "applied": "applied", "waiting": "waiting"}
    states |= {"failed": "errored", "ready": "complete"}
    named = {"id": plan_id, "status": status, "goal": goal, "phase": phase, "state": states[status]}
    return plan(**{"needs": None, "meaning": status, "answer": None, **named, **changed, **more})


def stored_plans() -> StoredPlans:
    waiting = board_plan(
        WAITING,
        "waiting",
        "Sign the session cookie with the key of the day, and keep old cookies valid",
        2,
        needs="approval",
        meaning="waiting: needs your approval",
        waiting_for={"for": "leave", "what": "approval: run `pytest -q 'tests; rm -rf /'`"},
        can=["approve", "deny", "budget", "cancel"],
        approval=example(ApprovalView, call=3),
        calls=[example(CallSummary, number=3, tool="command", state="asked")],
        checks=[example(CheckView, verdict="failed", details="1 failed, 11 passed", required=True)],
        spending=example(SpendingView, limits=LIMITS),
        steps=[],
        at_rest=True,
    )
    ready = board_plan(
        READY,
        "ready",
        "Add a --json flag to the export command",
        7,
        needs="review",
        meaning="ready: the result is ready for review",
        changes=[example(ChangeView, path="src/export.py"), example(ChangeView, path="logo.png", added=None)],
        answer="`export` takes `--json`.",
        steps=[],
        open_comments=1,
    )
    others = [
        board_plan("01KA2W4XJ7GJ5V8TQ3N6Y0ZB3C", "running", "Translate the manual", 1),
        board_plan("01KA2W4XJ7GJ5V8TQ3N6Y0ZB4D", "queued", "Update the licence", 3),
        board_plan("01KA2W4XJ7GJ5V8TQ3N6Y0ZB5E", "applied", "Fix the typo \x1b[2J in README", 20),
        board_plan("01KA2W4XJ7GJ5V8TQ3N6Y0ZB6F", "failed", "Port to Python 4", 50, needs="error"),
    ]
    return StoredPlans(waiting, ready, *others)


async def show_board(pilot: Pilot[None], app: TerminalApp) -> None:
    await pilot.press("f2")
    await until(pilot, lambda: app.home.board.has_focus)


async def show_conversation(pilot: Pilot[None], app: TerminalApp) -> None:
    app.home.conversation.open("S")
    await until(pilot, lambda: "The model is busy" in text_of(app.screen))


async def show_help(pilot: Pilot[None], app: TerminalApp) -> None:
    await pilot.press("f1")
    await until(pilot, lambda: "Commands and keys" in text_of(app.screen))


async def show_plan(pilot: Pilot[None], app: TerminalApp) -> None:
    await show_board(pilot, app)
    await pilot.press("enter")
    await until(pilot, lambda: "12 passed" in text_of(app.screen) and "Approve" in text_of(app.screen))


async def show_approval(pilot: Pilot[None], app: TerminalApp) -> None:
    await show_plan(pilot, app)
    await pilot.press("a")
    await until(pilot, lambda: "Approve this call?" in text_of(app.screen))


async def show_budget(pilot: Pilot[None], app: TerminalApp) -> None:
    await show_plan(pilot, app)
    await pilot.press("b")
    await until(pilot, lambda: "Raise the budget?" in text_of(app.screen))


async def show_review(pilot: Pilot[None], app: TerminalApp) -> None:
    from cleveragents.cli.terminal_app.review_screen import ReviewScreen

    await app.push_screen(ReviewScreen(app.client, READY))
    await until(pilot, lambda: "json.dumps" in text_of(app.screen))


SCENES: dict[str, Play] = {
    "board": show_board,
    "conversation": show_conversation,
    "help": show_help,
    "plan": show_plan,
    "approval": show_approval,
    "budget": show_budget,
    "review": show_review,
}


def shown(play: Play, width: int, look: Callable[[TerminalApp], str]) -> str:
    turns = (
        example(TurnView, answer=ANSWER),
        example(TurnView, number=2, question="And now?", answer="", state=FAILED, error="The model is busy"),
    )
    client = client_of(stored_plans(), FedEvents(), FedSessions(*turns))

    async def run() -> str:
        app = TerminalApp(client, ConversationRequest(repository="."))
        async with app.run_test(size=(width, 36)) as pilot:
            await until(pilot, lambda: "Needs you" in text_of(app.screen))
            await play(pilot, app)
            await app.workers.wait_for_complete()
            before = ""
            while before != (before := text_of(app.screen)):
                app.screen.refresh()  # a dialog that opens early keeps an empty background
                await pilot.pause(0.05)
            return look(app)

    return asyncio.run(run())


@pytest.mark.parametrize("width", [60, 120])
@pytest.mark.parametrize("name", SCENES)
def test_a_screen_is_as_stored(name: str, width: int) -> None:
    text = shown(SCENES[name], width, lambda app: text_of(app.screen))
    lines = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    assert "\x1b" not in lines
    stored = SCREENS / f"{name}-{width}.txt"
    if os.environ.get("WRITE_SCREENS"):
        stored.parent.mkdir(exist_ok=True)
        stored.write_text(lines, encoding="utf-8")
    assert lines == stored.read_text(encoding="utf-8")


def test_f1_shows_the_help_also_above_a_plan() -> None:
    async def show(pilot: Pilot[None], app: TerminalApp) -> None:
        await show_plan(pilot, app)
        await show_help(pilot, app)

    text = shown(show, 120, lambda app: text_of(app.screen))
    assert "Shift-A" in text


@pytest.mark.parametrize("name", SCENES)
def test_no_color_shows_shades_of_grey_and_the_same_text(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    def look(app: TerminalApp) -> str:
        colours = set(re.findall(r"#[0-9a-f]{6}\b", app.export_screenshot().lower()))
        assert {one for one in colours if not one[1:3] == one[3:5] == one[5:7]} <= FRAME
        return text_of(app.screen)

    text = shown(SCENES[name], 60, look)
    stored = (SCREENS / f"{name}-60.txt").read_text(encoding="utf-8")
    assert [line.rstrip() for line in text.splitlines()] == stored.splitlines()


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light"])
def test_changed_lines_of_a_diff_are_legible(theme: str) -> None:
    def look(app: TerminalApp) -> str:
        diff = app.screen.query_one(FileDiff)
        styles = [diff._style_of(row, -1) for row in diff.rows if row.kind in ("add", "remove")]
        assert [one for one in styles if contrast_of(one) < 4.5] == []
        assert len({one.bgcolor for one in styles}) == 2
        return ""

    async def show(pilot: Pilot[None], app: TerminalApp) -> None:
        app.theme = theme
        await show_review(pilot, app)

    shown(show, 110, look)


def contrast_of(style: Style) -> float:
    """Return the contrast of a text with its background, as WCAG 2 defines it."""

    def luminance(colour: RichColor | None) -> float:
        assert colour is not None
        parts = [part / 255 for part in colour.get_truecolor()]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted([luminance(style.color), luminance(style.bgcolor)])
    return (high + 0.05) / (low + 0.05)


FRAME = {"#ff5f57", "#febc2e", "#28c840", "#c5c8c6"}
"""Colours of the window that an exported screenshot draws around the screen."""
