"""The live view: what stands on the screen, whatever size it has, and what is left of it afterwards."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
import structlog
from msgspec.structs import replace
from rich.cells import cell_len
from rich.text import Text

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.cli.plan.exit_codes import joint_exit_code, short_ids
from cleveragents.cli.plan.meter import MeterReading, spending_label
from cleveragents.cli.render.board_row import beside
from cleveragents.cli.render.footer import Footer
from cleveragents.cli.render.narrow_terminal import terminal_size
from cleveragents.cli.render.rich_board import RichBoard
from cleveragents.cli.render.rich_view import RichView, elapsed, styled
from cleveragents.cli.run.interruption import PAUSING
from cleveragents.models.model.budget import PICODOLLARS, BudgetLimits, Spend
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.model.status import status_of
from cleveragents.plans.model.sub_plan import waits_for_sub_plans
from tests.cli_bench import COMMAND, paint_shop, use_home
from tests.fork_server import Forked

pytestmark = pytest.mark.usefixtures("commands_are_forked")
NOW = datetime(2026, 11, 15, tzinfo=UTC)
SECRET = "sk-abcdefghijklmnopqrstuvwxyz0123"


class Screen(StringIO):
    """A terminal: what its control sequences leave on it. Lines are broken where it is too narrow."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        super().__init__()
        self.columns, self.height = columns, lines
        self.rows: list[str] = [""]
        self.row = self.column = 0
        self.breaks = True
        self.writes = 0

    def size(self) -> tuple[int, int]:
        return self.columns, self.height

    def write(self, text: str) -> int:
        self.writes += 1
        for escape, character in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z])|([\s\S])", text):
            self._obey(escape) if escape else self._put(character)
        return len(text)

    def narrowed(self, columns: int) -> None:
        """Breaks the lines that are too long now, as most terminals do; the cursor stays at its text."""
        before, self.columns = self.rows, columns
        self.rows = []
        for number, row in enumerate(before):
            pieces = [row[start : start + columns] for start in range(0, len(row), columns)] or [""]
            self.rows += pieces
            if number == self.row:
                row_of_cursor = len(self.rows) - 1
        self.row, self.column = row_of_cursor, len(self.rows[row_of_cursor])

    @property
    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self.rows).rstrip("\n")

    def _obey(self, escape: str) -> None:
        number = int(re.sub(r"\D", "", escape) or 1)
        if escape.endswith("A"):
            assert self.row >= number, "above the top"
            self.row -= number
        elif escape.endswith("K"):
            self.rows[self.row] = self.rows[self.row][: self.column]
        elif escape.endswith("J"):
            self.rows[self.row :] = [self.rows[self.row][: self.column]]
        elif escape.endswith(("h", "l")):
            assert number == 7, "no mode is changed but how lines are broken"
            self.breaks = escape.endswith("h")
        else:
            assert escape.endswith("m")

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n" or (self.column == self.columns and self.breaks):
            self.row, self.column = self.row + 1, 0
            self.rows += [""] * (self.row + 1 - len(self.rows))
            if character != "\n":
                self._put(character)
        elif self.column < self.columns:
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[: self.column] + character + row[self.column + 1 :]
            self.column += 1


def reading(plan: Plan, spent: Spend | None = None, limits: BudgetLimits | None = None) -> MeterReading:
    status = status_of(plan.phase, plan.state, sub_plans_run=waits_for_sub_plans(plan))
    return MeterReading(plan, spent or Spend(), limits or BudgetLimits(), status)


class Meter:
    """A meter with fixed readings."""

    def __init__(self, plan: Plan, spent: Spend | None = None, limits: BudgetLimits | None = None) -> None:
        self.last = reading(plan, spent, limits)
        self.below: list[MeterReading] = []
        self.reads = 0

    def read(self) -> MeterReading:
        self.reads += 1
        return self.last


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plan(state: PlanState = PlanState.PROCESSING, *, number: int = 0, goal: str = "Add a flag") -> Plan:
    return Plan(
        f"01M7FAFVRNZ56XTRRK66P37{number:03}", goal, "builtin/goal", "/r", Phase.EXECUTE, state, 1, NOW, NOW
    )


def live(screen: Screen, meter: Meter | None = None, clock: Clock | None = None) -> RichView:
    meter = meter or Meter(plan())
    return RichView(meter, hint="Ctrl-C pauses it", stream=screen, size=screen.size, clock=clock or Clock())


def tell(view: RichView, kind: ProgressKind, text: str = "", *, failed: bool = False) -> None:
    view.seen(Progress(kind, "builtin/executor", "think", text, failed=failed))


# ── One plan ──────────────────────────────────────────────────────────────────────────────────────


def test_the_bottom_says_phase_step_answer_spending_and_time() -> None:
    screen, clock = Screen(), Clock()
    meter = Meter(plan(), Spend(PICODOLLARS // 100, 1234, 2), BudgetLimits(PICODOLLARS // 2, 50_000))
    view = live(screen, meter, clock)
    view.say("plan P37: Add a flag")
    view.say("step 2 of 3: Wire it up")
    tell(view, ProgressKind.THINKING, "scripted/x")
    tell(view, ProgressKind.PIECE, "First line\nLet me look at ")
    clock.now += 62
    view.draw()
    assert screen.text.splitlines() == [
        "plan P37: Add a flag",
        "step 2 of 3: Wire it up",
        "── running · step 2 of 3: Wire it up ".ljust(79, "─"),
        "⠹ executor is thinking (scripted/x)".replace("⠹", screen.text.splitlines()[3][0]),
        "  First line",
        "  Let me look at",
        "1,234 of 50,000 tokens · $0.0100 of $0.5000 · 1:02 · Ctrl-C pauses it",
    ]


def test_finished_lines_scroll_and_stay_after_close() -> None:
    screen = Screen()
    view = live(screen)
    view.draw()
    view.say("step 1 of 1: look")
    tell(view, ProgressKind.TOOL, "read a.py")
    view.draw()
    assert screen.text.splitlines()[-2].endswith("executor: read a.py")
    tell(view, ProgressKind.TOOL_DONE, "no such file", failed=True)
    view.output(b"\x1b[31mred\x1b[0m\rover\nand [bold]more[/bold]")
    tell(view, ProgressKind.THOUGHT, "I see.")
    view.draw()
    view.say(f"a token {SECRET}\x1b[2J")
    view.close()
    view.close()
    assert screen.text.splitlines() == [
        "step 1 of 1: look",
        "  read a.py",
        "    it failed: no such file",
        "  over",
        "  and [bold]more[/bold]",
        "  “I see.”",
        "a token ***\\x1b[2J",
    ]
    assert screen.column == 0


def test_messages_wrap_between_words_and_command_output_does_not() -> None:
    screen = Screen(columns=40)
    view = live(screen)
    view.say("step 1 of 1: Let prices be calculated with the tax of the customer's country")
    tell(view, ProgressKind.THOUGHT, "Everybody is ✅✅✅✅✅✅✅✅✅✅ about it, as far as one can see")
    view.say("not isolated; `agents doctor --format json` says more")
    view.say("x" * 50)
    view.output(b"a line of a command, which may be copied\n")
    view.close()
    assert screen.text.splitlines() == [
        "step 1 of 1: Let prices be calculated",
        "  with the tax of the customer's",
        "  country",
        "  “Everybody is ✅✅✅✅✅✅✅✅✅✅",
        "    about it, as far as one can see”",
        "not isolated;",
        "  `agents doctor --format json` says",
        "  more",
        "x" * 40,
        "x" * 10,
        "  a line of a command, which may be copi",
        "ed",
    ]


def test_the_last_answer_and_activity_fit_in_wide_characters() -> None:
    screen = Screen(columns=40)
    view = live(screen)
    tell(view, ProgressKind.PIECE, f"{'長' * 30} 終 ")
    view.draw()
    assert f"…{'長' * 17} 終" in screen.text
    row = beside(["P37000"], "長" * 60, "reads", 80)
    assert (row, cell_len(row)) == (f"P37000  {'長' * 17}…  reads", 50)


def test_messages_above_the_board_wrap_between_words() -> None:
    screen = Screen(columns=40)
    board = RichBoard([Meter(plan())], stream=screen, size=screen.size, clock=Clock())
    board.view_of(plan()).say("planned: 1. Let prices be calculated with tax")
    board.say("and something that concerns all of those plans")
    board.close()
    assert screen.text.splitlines() == [
        "P37000  planned: 1. Let prices be",
        "  calculated with tax",
        "and something that concerns all of",
        "  those plans",
    ]


def test_a_line_that_comes_after_the_end_is_not_lost() -> None:
    screen = Screen()
    view = live(screen)
    view.close()
    view.say("late")
    view.draw()
    assert screen.text == "late"


def test_a_pausing_plan_is_not_shown_as_working() -> None:
    screen = Screen(80)
    view = live(screen)
    view.say(f"{PAUSING} the plan …")
    tell(view, ProgressKind.TOOL, "command sleep")
    view.draw()
    assert screen.text.splitlines()[-2].endswith(" pausing …")
    assert screen.text.splitlines()[-1].endswith("Ctrl-C again kills it")
    view.close()


@pytest.mark.parametrize("columns", [40, 41, 60, 200])
def test_it_fits_any_width(columns: int) -> None:
    screen = Screen(columns)
    meter = Meter(plan(), Spend(PICODOLLARS, 123_456, 2), BudgetLimits(PICODOLLARS, 999_999))
    view = live(screen, meter)
    view.say(f"step 1 of 1: {'long ' * 30}")
    tell(view, ProgressKind.TOOL, f"command {'x' * 100}")
    tell(view, ProgressKind.PIECE, f"{'word ' * 60}end ")
    view.draw()
    before = screen.text
    view.draw()
    assert screen.text == before
    assert "Ctrl-C pauses it" in before
    assert "end" in before
    assert all(len(row) < columns for row in before.splitlines()[-4:])


def test_a_terminal_of_two_lines_shows_the_current_activity() -> None:
    screen = Screen(lines=2)
    view = live(screen)
    tell(view, ProgressKind.TOOL, "read a.py")
    view.draw()
    assert screen.text.splitlines()[-1].endswith("executor: read a.py")
    assert len(screen.text.splitlines()) == 2


def test_a_terminal_that_becomes_narrower_loses_nothing_that_is_finished() -> None:
    screen = Screen(100)
    view = live(screen)
    view.say("step 1 of 1: look")
    view.draw()
    screen.narrowed(45)
    view.say("check it")
    view.draw()
    view.draw()
    assert [row for row in screen.text.splitlines() if row] == [
        "step 1 of 1: look",
        "check it",
        "── running · check it ".ljust(44, "─"),
        *screen.text.splitlines()[-2:],
    ]
    view.close()
    assert screen.text.splitlines()[-1] == "check it"


def test_the_records_are_read_twice_a_second_at_most() -> None:
    clock, meter = Clock(), Meter(plan())
    view = live(Screen(), meter, clock)
    for _ in range(8):
        view.draw()
        clock.now += 0.125
    assert meter.reads == 2


def test_no_color_disables_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, coloured in (("NO_COLOR", False), ("UNRELATED", True)):
        stream = StringIO()
        with monkeypatch.context() as patched:
            patched.delenv("NO_COLOR", raising=False)
            patched.setenv("TERM", "xterm-256color")
            patched.setenv(name, "1")
            view = RichView(Meter(plan()), hint="", stream=stream, size=lambda: (80, 24))
            view.draw()
        assert ("\x1b[36m" in stream.getvalue()) is coloured


def test_a_step_is_never_shown_below_the_phase_before_it() -> None:
    screen, meter = Screen(), Meter(plan())
    view = live(screen, meter)
    view.draw()
    before = meter.reads
    view.say("step 1 of 2: Add a flag")
    view.draw()  # at the same moment
    assert meter.reads == before + 1


def test_log_lines_scroll_too_and_go_their_own_way_afterwards() -> None:
    screen, own = Screen(), StringIO()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(own))
    view = live(screen)
    view.start()
    structlog.get_logger().warning("while it is live")
    view.close()
    structlog.get_logger().warning("afterwards")
    assert "while it is live" in screen.text
    assert "afterwards" not in screen.text
    assert "afterwards" in own.getvalue()
    assert "while" not in own.getvalue()


def test_a_terminal_that_is_gone_does_not_fail_the_plan() -> None:
    class Gone(StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    view = RichView(Meter(plan()), hint="", stream=Gone(), size=lambda: (80, 24))
    view.say("one")
    view.draw()
    view.close()


def test_elapsed_time_shows_hours() -> None:
    assert [elapsed(seconds) for seconds in (0, 61.9, 3723)] == ["0:00", "1:01", "1:02:03"]


def test_spending_is_shown_as_far_as_it_is_known() -> None:
    assert spending_label(Meter(plan(), Spend(0, 1200, 1)).last) == ["1,200 tokens"]
    assert spending_label(Meter(plan(), Spend(PICODOLLARS, 5, 1)).last) == ["5 tokens", "$1.00"]


def test_plans_are_named_by_ends_that_differ() -> None:
    one, other = plan(number=1), plan(number=2)
    assert short_ids([one.id, other.id]) == {one.id: "P37001", other.id: "P37002"}
    alike = replace(one, id=f"X{one.id[1:10]}Y{one.id[11:]}")
    assert len(set(short_ids([one.id, alike.id]).values())) == 2


def test_a_failure_outweighs_a_pending_request() -> None:
    assert [joint_exit_code(codes) for codes in ([0, 0], [0, 3], [3, 1, 0], [0, 130])] == [0, 3, 1, 1]


def test_a_stream_without_a_terminal_has_a_size() -> None:
    assert min(terminal_size(StringIO())) > 0


def test_the_footer_draws_by_itself_until_it_is_closed() -> None:
    screen = Screen()
    drawn: list[int] = []
    third = threading.Event()

    def prepare() -> None:
        drawn.append(1)
        if len(drawn) == 3:
            third.set()

    footer = Footer(
        lambda room: [styled("bottom", "")],
        prepare=prepare,
        stream=screen,
        size=screen.size,
    )
    footer.start()
    assert third.wait(30)
    footer.close()
    assert screen.text == ""


def test_nothing_drawn_during_close_remains() -> None:
    screen = Screen()
    closing = threading.Thread(target=lambda: footer.close())

    def render(room: tuple[int, int]) -> list[Text]:
        closing.start()
        closing.join(0.3)  # it waits for the drawing, if that has begun
        return [styled("bottom", "")]

    footer = Footer(render, prepare=lambda: None, stream=screen, size=screen.size)
    footer.draw()
    closing.join(30)
    assert screen.text == ""


def test_a_line_that_comes_while_the_view_is_closed_stands_below_the_others() -> None:
    class Slow(Screen):
        thread: threading.Thread | None = None

        def write(self, text: str) -> int:
            thread, self.thread = self.thread, None
            if thread is not None:
                thread.start()
                thread.join(0.3)
            return super().write(text)

    screen = Slow()
    footer = Footer(
        lambda room: [styled("top", ""), styled("bottom", "")],
        prepare=lambda: None,
        stream=screen,
        size=screen.size,
    )
    footer.scroll(styled("one", ""))
    footer.draw()
    late = screen.thread = threading.Thread(target=lambda: footer.scroll(styled("late", "")))
    footer.close()
    late.join(30)
    assert screen.text.splitlines() == ["one", "late"]


# ── Several plans ─────────────────────────────────────────────────────────────────────────────────


def test_a_table_has_a_row_for_each_plan() -> None:
    screen = Screen(100)
    meters = [
        Meter(plan(PlanState.COMPLETE, number=1, goal="First"), Spend(0, 1500, 1)),
        Meter(plan(PlanState.PROCESSING, number=2, goal=f"Second {SECRET} {'x' * 80}"), Spend(0, 20, 1)),
        Meter(plan(PlanState.QUEUED, number=3, goal="Third")),
    ]
    board = RichBoard(meters, stream=screen, size=screen.size, clock=Clock())
    row = board.view_of(meters[1].last.plan)
    row.say("step 1 of 1: look")
    row.seen(Progress(ProgressKind.THINKING, "builtin/executor", "think", "scripted/x"))
    board.draw()
    assert "executor is thinking" in screen.text
    row.seen(Progress(ProgressKind.TOOL, "builtin/executor", "think", "read a.py"))
    row.seen(Progress(ProgressKind.TOOL_DONE, "builtin/executor", "think", "not there", failed=True))
    row.output(b"nobody could read it")
    board.say("a word to all")
    board.draw()
    lines = screen.text.splitlines()
    finished = ["P37002  step 1 of 1: look", "P37002      it failed: not there", "a word to all"]
    assert lines[:3] == finished
    assert [line.split()[0] for line in lines[3:7]] == ["plan", "P37002", "P37003", "P37001"]
    assert "read a.py" in lines[4]
    assert "***" in lines[4]
    assert "queued" in lines[5]
    assert "ready" in lines[6]
    assert "1,500" in lines[6]
    assert lines[7] == "1 of 3 done · 1,520 tokens · 0:00 · Ctrl-C pauses them all"
    board.say(f"{PAUSING} 3 plans …")
    board.draw()
    assert screen.text.endswith("pausing …, Ctrl-C again kills them")
    finished.append(f"{PAUSING} 3 plans …")
    row.close()
    board.close()
    assert screen.text.splitlines() == finished


@pytest.mark.parametrize("columns", [40, 69])
def test_more_plans_than_fit_are_counted(columns: int) -> None:
    screen = Screen(columns, 12)
    states = [PlanState.QUEUED] * 10 + [PlanState.ERRORED, PlanState.PROCESSING]
    meters = [Meter(plan(state, number=number)) for number, state in enumerate(states)]
    board = RichBoard(meters, stream=screen, size=screen.size, clock=Clock())
    board.draw()
    lines = screen.text.splitlines()
    assert len(lines) <= 11
    assert "running" in lines[1]
    assert "failed" in lines[2]
    assert "… and 5 queued" in lines
    assert lines[2].split(maxsplit=2)[2].startswith("Add a flag")
    assert all(len(line) < columns for line in lines)


def test_ended_plans_are_not_read_again() -> None:
    clock = Clock()
    meters = [Meter(plan(PlanState.PROCESSING, number=1)), Meter(plan(PlanState.CANCELLED, number=2))]
    screen = Screen()
    board = RichBoard(meters, stream=screen, size=screen.size, clock=clock)
    for _ in range(4):
        board.draw()
        clock.now += 0.5
    assert [meter.reads for meter in meters] == [2, 0]
    board.start()
    board.close()
    board.close()


def sub_plan(state: PlanState, number: int, *, depth: int = 1, parent: Plan | None = None) -> Plan:
    return replace(
        plan(state, number=number, goal=f"Part {number}\n\nAll that it has to know."),
        parent_id=(parent or plan()).id,
        root_id=plan().id,
        depth=depth,
    )


def test_sub_plans_are_listed_below_their_plan_with_their_activity() -> None:
    screen, meter = Screen(), Meter(replace(plan(PlanState.WAITING), waiting_for={"for": "sub-plans"}))
    view = live(screen, meter)
    first, second = sub_plan(PlanState.COMPLETE, 1), sub_plan(PlanState.PROCESSING, 2)
    third = sub_plan(PlanState.QUEUED, 3, depth=2, parent=second)
    meter.below = [reading(one, Spend(0, 1200, 1)) for one in (first, second, third)]
    assert view.view_of(meter.last.plan) is view
    row = view.view_of(second)
    assert view.view_of(second) is row
    row.say("step 1 of 2: look\nand see")
    row.output(b"nobody could read it")
    view.draw()
    lines = screen.text.splitlines()
    assert lines[:3] == [
        f"P37002  plan {second.id}: Part 2",
        "P37002  step 1 of 2: look",
        "P37002  and see",
    ]
    assert lines[3].startswith("── running · 1 of 2 sub-plans done ──")
    assert lines[4].endswith("waiting for sub-plans")
    assert [line.split()[:3] for line in lines[5:8]] == [
        ["P37001", "ready", "1,200"],
        ["P37002", "running", "1,200"],
        ["P37003", "queued", "1,200"],
    ]
    assert lines[6].endswith("1/2 look and see")
    assert lines[7].startswith("    P37003")
    view.close()
    assert screen.text.splitlines() == lines[:3]


@pytest.mark.parametrize(("columns", "lines"), [(40, 10), (59, 12), (80, 8)])
def test_of_more_sub_plans_than_fit_those_that_run_are_seen(columns: int, lines: int) -> None:
    screen, meter = Screen(columns, lines), Meter(plan())
    states = [PlanState.COMPLETE] * 20 + [PlanState.PROCESSING]
    meter.below = [reading(sub_plan(state, number)) for number, state in enumerate(states, start=1)]
    view = live(screen, meter)
    view.draw()
    shown = screen.text.splitlines()
    assert len(shown) < lines
    assert all(len(line) < columns for line in shown)
    assert any("P37021  running" in line for line in shown)
    assert any("more" in line for line in shown)


def test_a_table_of_plans_has_their_sub_plans_below_them() -> None:
    screen = Screen(100)
    waits = replace(plan(PlanState.WAITING, number=1, goal="First"), waiting_for={"for": "sub-plans"})
    meters = [Meter(plan(PlanState.QUEUED, number=9, goal="Second")), Meter(waits)]
    part = sub_plan(PlanState.PROCESSING, 2, parent=waits)
    meters[1].below = [reading(part, Spend(0, 7, 1))]
    board = RichBoard(meters, stream=screen, size=screen.size, clock=Clock())
    board.view_of(part).say("look")
    assert board.view_of(part) is board.view_of(part)
    board.draw()
    lines = screen.text.splitlines()
    assert lines[:2] == [f"P37002  plan {part.id}: Part 2", "P37002  look"]
    assert [line.split()[0] for line in lines[2:6]] == ["plan", "P37001", "P37002", "P37009"]
    assert lines[3].split()[1] == "running"
    assert lines[4].startswith("  P37002")
    assert lines[4].rstrip().endswith("look")
    assert lines[6].startswith("0 of 2 done")
    board.close()


# ── A real terminal ───────────────────────────────────────────────────────────────────────────────


class Terminal:
    """A program on a terminal of its own, and all it wrote there."""

    def __init__(self, arguments: list[str], directory: Path) -> None:
        self._main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = Forked(
            [sys.executable, "-m", "cleveragents", *arguments],
            cwd=directory,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(other)
        self.written = ""

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + 60
        while words not in self.written and time.monotonic() < deadline and self._read(1.0):
            pass
        assert words in self.written, self.written

    def end(self) -> int:
        while self._read(30.0):
            pass
        return self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        os.close(self._main)

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def _read(self, patience: float) -> bool:
        """Whether there may be more."""
        if not select.select([self._main], [], [], patience)[0]:
            return True
        try:
            chunk = os.read(self._main, 65536)
        except OSError:
            return False
        self.written += chunk.decode("utf-8", "replace")
        return bool(chunk)


@contextmanager
def terminal(arguments: list[str], directory: Path) -> Iterator[Terminal]:
    made = Terminal(arguments, directory)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path, tmp_path / "state")
    return paint_shop(tmp_path / "repository")


def test_the_question_comes_when_the_view_is_gone(repository: Path) -> None:
    with terminal([*COMMAND, "sed", "-i", "s/colour/color/", "README.md"], repository) as shown:
        shown.wait_for("Apply?")
        before = shown.written
        shown.type("y\n")
        assert shown.end() == 0
    assert "Ctrl-C pauses it" in before
    assert "\x1b[?7l" not in before.rpartition("\x1b[?7h")[2]
    assert "Ctrl-C" not in before.rpartition("1 file changed")[2]
    assert (repository / "README.md").read_text() == "The color of it.\n"


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_no_signal_leaves_the_terminal_without_a_cursor(
    repository: Path, signum: signal.Signals, code: int
) -> None:
    with terminal([*COMMAND, "sh", "-c", "echo begun; sleep 60"], repository) as shown:
        shown.wait_for("begun")
        shown.process.send_signal(signum)
        assert shown.end() == code
    assert "\x1b[?25l" not in shown.written
    assert "\x1b[?1049h" not in shown.written
    assert shown.written.count("\x1b[?7l") == shown.written.count("\x1b[?7h")
    if signum is signal.SIGTERM:
        assert "agents plan resume" in shown.written


def test_several_goals_have_a_table_and_a_summary(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, goals = tmp_path / "model.yaml", tmp_path / "goals.txt"
    script.write_text("rules: [{reply: {fault: {hang: true}}}]\n")
    goals.write_text("first\nsecond\n")
    monkeypatch.setenv("CLEVERAGENTS_MODELS_DEFAULT", f"scripted/{script}")
    with terminal(["run", "-f", str(goals), "--parallel", "2"], repository) as shown:
        shown.wait_for("strategist is")
        shown.process.send_signal(signal.SIGINT)
        assert shown.end() == 130
    assert "0 of 2 done" in shown.written
    assert "Ctrl-C pauses them all" in shown.written
    assert shown.written.count("is paused") == 2


def test_on_a_terminal_sub_plans_have_lines_and_are_stopped_together(
    repository: Path, tmp_path: Path
) -> None:
    goals = tmp_path / "goals.yaml"
    argv = "[sh, -c, 'echo begun; sleep 600']"
    goals.write_text(
        f"goals: [{{name: first, action: builtin/command, arguments: {{argv: {argv}}}}},"
        f" {{name: second, action: builtin/command, arguments: {{argv: {argv}}}}}]"
    )
    with terminal(["run", "-f", str(goals)], repository) as shown:
        shown.wait_for("1/1 command sh -c")
        shown.process.send_signal(signal.SIGINT)
        assert shown.end() == 130
    assert "0 of 2 sub-plans done" in shown.written
    assert "waiting for sub-plans" in shown.written
    assert "is paused" in shown.written
    assert "agents plan resume" in shown.written
