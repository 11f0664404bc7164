"""What is seen of a plan while it runs, line by line and as JSON."""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime
from io import StringIO
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.cli.output import Output
from cleveragents.cli.render.board import PlainBoard, StreamBoard, announced
from cleveragents.cli.render.live_output import ChunkFlow, LiveOutput
from cleveragents.cli.render.live_view import PlainView, is_for_terminal, is_on_screen, lines_of
from cleveragents.cli.render.stream_view import StreamView
from cleveragents.core.json_value import freeze
from cleveragents.plans.model.plan import Phase, Plan, PlanState

SECRET = "sk-abcdefghijklmnopqrstuvwxyz0123"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQ1\nMIIEvQ2\n-----END PRIVATE KEY-----"


def seen(kind: ProgressKind, text: str = "", *, node: str = "think", failed: bool = False) -> Progress:
    return Progress(kind, "builtin/executor", node, text, failed=failed)


def events(stream: StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class Gone(StringIO):
    """A reader that went away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_private_key_that_a_command_prints_line_by_line_is_not_shown() -> None:
    for end in ("", "\nafter\n"):
        lines: list[str] = []
        live = LiveOutput(lines.append)
        for line in f"{'log ' * 10_000}\nbefore\n{KEY}{end}".splitlines(keepends=True):
            live(line.encode())
        live.finish()
        assert "".join(lines).count("MIIEvQ") == 0
        shown = [line for line in lines if not line.startswith("  log")]
        assert shown[0] == "  before"
        assert shown[1:] == [
            "  -----BEGIN PRIVATE KEY-----***-----END PRIVATE KEY-----",
            *(["  after"] if end else []),
        ]


def test_lines_before_a_key_are_shown_at_once_and_one_without_an_end_in_the_end() -> None:
    lines: list[str] = []
    live = LiveOutput(lines.append)
    live(("x\n" * 40_000 + KEY[:40]).encode())
    live(b"\nMIIEvQ3\n")
    assert lines == ["  x"] * 40_000
    live.finish()
    assert lines[40_000:] == ["  -----BEGIN PRIVATE KEY-----***"]


# ── Lines ─────────────────────────────────────────────────────────────────────────────────────────


def test_plain_lines_show_calls_answers_and_failures() -> None:
    lines: list[str] = []
    view = PlainView("7QX2  ", write=lines.append)
    view.say("step 1 of 2: look")
    view.seen(seen(ProgressKind.THINKING, "a model"))
    view.seen(seen(ProgressKind.PIECE, "Let me"))
    view.seen(seen(ProgressKind.THOUGHT, "Let me\nlook."))
    view.seen(seen(ProgressKind.TOOL, "read a.py"))
    view.seen(seen(ProgressKind.TOOL_DONE, "no such file", failed=True))
    view.seen(seen(ProgressKind.TOOL_DONE, "fine"))
    view.output(b"half a li")
    view.say("check tests")
    view.output(b"ne\nrest")
    view.close()
    assert lines == [
        "7QX2  step 1 of 2: look",
        "7QX2    “Let me",
        "7QX2     look.”",
        "7QX2    read a.py",
        "7QX2      it failed: no such file",
        "7QX2    half a li",
        "7QX2  check tests",
        "7QX2    ne",
        "7QX2    rest",
    ]


def test_of_an_answer_for_programs_people_get_the_summary_and_the_findings() -> None:
    answer = json.dumps({"summary": "It is\ngood.", "findings": ["a.py: too long"], "verdict": "revise"})
    assert lines_of(seen(ProgressKind.THOUGHT, answer)) == ["  “It is", "   good.”", "  - a.py: too long"]
    assert lines_of(seen(ProgressKind.THOUGHT, '{"verdict": "accept"}')) == ["  “accept”"]
    assert lines_of(seen(ProgressKind.THOUGHT, '{"other": 1}')) == []
    assert lines_of(seen(ProgressKind.THOUGHT, "[1, 2]")) == ["  “[1, 2]”"]
    assert lines_of(seen(ProgressKind.THOUGHT, " \n")) == []


def test_a_message_of_the_agent_is_shown_whole_and_masked() -> None:
    text = "\n\n".join([f"Paragraph {number}: {'word ' * 60}".rstrip() for number in range(20)])
    lines = lines_of(seen(ProgressKind.THOUGHT, f"{text}\n{SECRET}"))
    assert [line.strip(" “”") for line in lines[:-1]] == text.splitlines()
    assert lines[-1] == "   ***”"


def test_a_long_line_is_cut_and_a_secret_in_it_masked() -> None:
    (line,) = lines_of(seen(ProgressKind.TOOL, f"command {SECRET} {'x' * 300}"))
    assert line.startswith("  command *** xxx")
    assert line.endswith("…")
    assert len(line) == 162


def test_a_plan_continues_without_a_reader() -> None:
    gone = Gone()
    view = PlainView(write=lambda line: print(line, file=gone))
    view.say("one")
    view.output(b"two\n")
    view.close()


def test_only_a_terminal_that_moves_its_cursor_gets_the_live_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert is_for_terminal(Output("rich"))
    assert not any(is_for_terminal(Output(name)) for name in ("plain", "json", "stream-json"))
    assert not is_for_terminal(None)
    monkeypatch.setenv("TERM", "dumb")
    assert not is_for_terminal(Output("rich"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    assert not is_for_terminal(Output("rich"))


def test_an_answer_on_the_terminal_is_not_printed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    view = PlainView(write=lambda line: None)
    view.seen(Progress(ProgressKind.THOUGHT, "builtin/executor", "think", "It is 42, as ever.\n"))
    assert is_on_screen("It is 42, as ever.")
    assert not is_on_screen("It is 43.")
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    assert not is_on_screen("It is 42, as ever."), "a pipe gets the answer"


# ── Pieces of an answer ───────────────────────────────────────────────────────────────────────────


@given(st.lists(st.text(alphabet="ab .\n\t", max_size=6), max_size=12))
def test_the_pieces_of_an_answer_add_up_to_it(pieces: list[str]) -> None:
    flow = ChunkFlow()
    assert "".join([*map(flow, pieces), flow.finish()]) == "".join(pieces)


@given(st.lists(st.integers(0, 200), max_size=8))
def test_a_secret_is_masked_wherever_the_pieces_cut_it(cuts: list[int]) -> None:
    text = (
        f"I use password: hunter2xx and\nAuthorization: Bearer {SECRET} then {SECRET}, "
        f"and so on\nto {KEY} the end"
    )
    places = [0, *sorted({cut % len(text) for cut in cuts}), len(text)]
    flow = ChunkFlow()
    shown = [flow(text[start:end]) for start, end in pairwise(places)]
    shown.append(flow.finish())
    assert "hunter2" not in "".join(shown)
    assert SECRET not in "".join(shown)
    assert SECRET[:12] not in "".join(shown)
    assert "MIIEvQ" not in "".join(shown)
    assert "".join(shown).endswith("-----END PRIVATE KEY----- the end")


def test_a_line_without_an_end_is_shown_at_last() -> None:
    flow = ChunkFlow()
    shown = flow("x" * 5000)
    assert shown == "x" * 5000
    assert flow.finish() == ""


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────


def test_every_thing_seen_is_one_object_on_a_line_of_its_own() -> None:
    stream = StringIO()
    view = StreamView("P1", stream)
    view.say("step 1 of 1: look")
    view.seen(seen(ProgressKind.NODE))
    view.seen(seen(ProgressKind.THINKING, "scripted/x"))
    view.seen(seen(ProgressKind.PIECE, "Let me "))
    view.seen(seen(ProgressKind.PIECE, "other ", node="b"))
    view.seen(seen(ProgressKind.PIECE, "look"))
    view.seen(seen(ProgressKind.THOUGHT, "Let me look"))
    view.seen(seen(ProgressKind.TOOL, "read a.py"))
    view.seen(seen(ProgressKind.TOOL_DONE, "gone", failed=True))
    view.output(b"\x1b[31mred\x1b[0m\nno end")
    view.close()
    told = events(stream)
    expected = "say node thinking piece piece piece thought tool tool_done output output"
    assert " ".join(str(event["event"]) for event in told) == expected
    assert {event["plan"] for event in told} == {"P1"}
    assert [event["text"] for event in told if event["event"] == "piece"] == ["Let me ", "other ", "look"]
    assert told[8]["failed"] is True
    assert told[2] | {"actor": "builtin/executor", "node": "think", "text": "scripted/x"} == told[2]
    assert [event["text"] for event in told[-2:]] == ["red", "no end"]


def test_a_call_carries_its_tool_and_masked_bounded_arguments() -> None:
    stream = StringIO()
    view = StreamView("P1", stream)
    arguments = freeze({"path": "a.py", "content": f"{SECRET} " + "x" * 9000, "deep": [[[[[[["y"]]]]]]]})
    called = seen(ProgressKind.TOOL, "write {…")
    view.seen(replace(called, tool="write", arguments=arguments))
    view.seen(called)
    first, second = events(stream)
    assert (first["tool"], first["arguments"]["path"]) == ("write", "a.py")
    assert SECRET[:10] not in stream.getvalue()
    assert len(first["arguments"]["content"]) < 2100
    assert first["arguments"]["deep"] == [[[[["…"]]]]]
    assert (second["tool"], second["arguments"]) == ("write", None)


def test_no_event_carries_a_secret() -> None:
    stream = StringIO()
    view = StreamView("P1", stream)
    view.say(f"step with {SECRET}")
    view.seen(seen(ProgressKind.PIECE, SECRET[:10]))
    view.seen(seen(ProgressKind.PIECE, f"{SECRET[10:]} it is"))
    view.seen(seen(ProgressKind.THOUGHT, f"{SECRET} it is"))
    view.output(f"token={SECRET}\n".encode())
    view.close()
    assert SECRET[:10] not in stream.getvalue()
    assert len(events(stream)) == 5


def test_a_stream_whose_reader_went_away_does_not_fail_the_plan() -> None:
    view = StreamView("P1", Gone())
    view.say("one")
    view.say("two")
    view.close()


# ── Threads ───────────────────────────────────────────────────────────────────────────────────────


class Meeting:
    """While the first line is written, another thread tells something, too; it gets time to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.intruder: threading.Thread | None = None

    def write(self, line: str) -> int:
        self.lines.append(line)
        if self.intruder is not None:
            thread, self.intruder = self.intruder, None
            thread.start()
            thread.join(0.3)  # it waits for us, if it may not write now
        return len(line)

    def flush(self) -> None: ...


@pytest.mark.parametrize("what", ["say", "close", "seen"])
@pytest.mark.parametrize("kind", ["plain", "stream"])
def test_lines_of_threads_are_not_mixed(kind: str, what: str) -> None:
    meeting = Meeting()
    view = PlainView(write=meeting.write) if kind == "plain" else StreamView("P1", meeting)
    told = {
        "say": lambda: view.say("said"),
        "close": view.close,
        "seen": lambda: view.seen(seen(ProgressKind.TOOL, "used")),
    }
    thread = meeting.intruder = threading.Thread(target=told[what])
    view.output(b"one\ntwo\nthree")
    thread.join(30)
    words = [list(dict.fromkeys(re.findall("one|two|three|said|used", line))) for line in meeting.lines]
    after = {"say": [["said"]], "close": [], "seen": [["used"]]}[what]
    assert words == [["one"], ["two"], ["three"], *after]


# ── Sub-plans ─────────────────────────────────────────────────────────────────────────────────────


def tree() -> tuple[Plan, Plan]:
    now = datetime(2026, 11, 15, tzinfo=UTC)
    root = Plan("01ROOT111111", "All", "a", "/r", Phase.EXECUTE, PlanState.PROCESSING, 1, now, now)
    part = replace(root, id="01PART222222", goal="Part\n\nMore", parent_id=root.id, root_id=root.id, depth=1)
    return root, part


@pytest.mark.parametrize("alone", [True, False])
def test_lines_of_sub_plans_begin_with_their_names(alone: bool, capsys: pytest.CaptureFixture[str]) -> None:
    root, part = tree()
    board = PlainBoard([root], alone=alone)
    board.view_of(root).say("begun")
    board.view_of(part).say("step")
    assert board.view_of(part) is board.view_of(part)
    board.say("all")
    board.close()
    first = "" if alone else "111111  "
    assert capsys.readouterr().err.splitlines() == [
        f"{first}begun",
        "222222  plan 01PART222222: Part",
        "222222  step",
        "all",
    ]


def test_events_of_a_sub_plan_name_its_parent(capsys: pytest.CaptureFixture[str]) -> None:
    root, part = tree()
    board = StreamBoard([root])
    board.view_of(root).say("begun")
    board.view_of(part).say("step")
    board.say("all")
    board.close()
    told = capsys.readouterr()
    assert [json.loads(line) for line in told.out.splitlines()] == [
        {"event": "say", "plan": root.id, "text": "begun"},
        {"event": "say", "plan": part.id, "parent": root.id, "text": f"plan {part.id}: Part"},
        {"event": "say", "plan": part.id, "parent": root.id, "text": "step"},
    ]
    assert told.err == "all\n"


def test_threads_that_ask_for_a_view_at_once_get_the_same_and_it_is_announced_once() -> None:
    _, part = tree()
    views: dict[str, PlainView] = {}
    lines: list[str] = []
    got: list[PlainView] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait(30)
        got.append(announced(views, part, PlainView(write=lines.append)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({id(view) for view in got}) == 1
    assert lines == [f"plan {part.id}: Part"]
