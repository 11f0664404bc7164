"""Output of plans is stored in order, masked and in time, and never delays a plan."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from typing import Any

import pytest
import structlog
from msgspec.structs import replace

from cleveragents.actors.model.actor import Progress, ProgressKind
from cleveragents.core.errors import StoreBusy
from cleveragents.core.text.redaction import KnownSecrets
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.output_recorder import OutputRecorder
from cleveragents.testing.clock import FakeClock
from tests.contracts.plan_stand import NOW

SECONDS = 30.0


class Kept:
    """A `PlanOutput` in memory that a test can wait on; `refuse` is the error of an append."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, str, str]] = []
        self.refuse: Callable[[str], None] = lambda plan_id: None
        self.refused = 0
        self.changed = threading.Condition()

    def append(self, plan_id: str, pieces: Sequence[tuple[str, str]], *, now: datetime) -> None:
        try:
            self.refuse(plan_id)
        except StoreBusy:
            with self.changed:
                self.refused += 1
                self.changed.notify_all()
            raise
        with self.changed:
            self.pieces += [(plan_id, kind, text) for kind, text in pieces]
            self.changed.notify_all()

    def read(self, plan_id: str, *, after: int = 0, limit: int = 1000) -> Sequence[object]:
        return []

    def text(self, plan_id: str, kind: str | None = None) -> str:
        wanted = [text for plan, each, text in self.pieces if plan == plan_id and kind in (None, each)]
        return "".join(wanted)

    def by_kind(self) -> list[tuple[str, str]]:
        """Join neighbours of one kind: where pieces end depends on the timing of the stores."""
        runs = groupby(self.pieces, key=lambda piece: piece[1])
        return [(kind, "".join(text for _, _, text in run)) for kind, run in runs]

    def wait_for(self, seen: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(seen, SECONDS)


def plan(name: str = "P") -> Plan:
    return Plan(name, "g", "a/b", "/r", Phase.EXECUTE, PlanState.PROCESSING, 1, NOW, NOW)


@contextmanager
def recording(kept: Kept, clock: FakeClock | None = None, **options: Any) -> Iterator[OutputRecorder]:
    recorder = OutputRecorder(kept, clock or FakeClock(), **{"interval_seconds": 0.01, **options})
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.close()


def test_stores_progress_output_and_model_text_in_order() -> None:
    kept = Kept()
    with recording(kept) as recorder:
        watch = recorder.watch(plan())
        assert watch.progress
        assert watch.on_output
        assert watch.told
        watch.progress("step 1")
        watch.on_output(b"printed\n")
        watch.told(Progress(ProgressKind.NODE, "a/b", "model"))
        watch.told(Progress(ProgressKind.THINKING, "a/b", "model", "some/model"))
        watch.told(Progress(ProgressKind.PIECE, "a/b", "model", "I think"))
        watch.told(Progress(ProgressKind.TOOL, "a/b", "model", "write\n f.py"))
        watch.told(Progress(ProgressKind.TOOL_DONE, "a/b", "model", "done"))
        watch.told(Progress(ProgressKind.TOOL_DONE, "a/b", "model", "no such file", failed=True))
        recorder.end("P")
    assert kept.by_kind() == [
        ("progress", "step 1\n"),
        ("output", "printed\n"),
        (
            "node",
            '{"actor": "a/b", "node": "model"}'
            '{"actor": "a/b", "node": "model", "event": "thinking", "text": "some/model"}',
        ),
        ("model", "I think\n"),
        ("progress", "  write f.py\n"),
        ("node", '{"actor": "a/b", "node": "model", "event": "tool_done", "text": "done"}'),
        ("progress", "    it failed: no such file\n"),
    ]


def test_the_end_of_a_job_waits_until_its_output_is_stored() -> None:
    kept = Kept()
    with recording(kept, interval_seconds=SECONDS) as recorder:
        watch = recorder.watch(plan())
        assert watch.progress
        watch.progress("applied")
        recorder.settle("P")
        assert kept.text("P") == "applied\n"


def test_a_store_that_refuses_delays_the_end_of_a_job_for_a_bounded_time() -> None:
    kept = Kept()

    def refuse(plan_id: str) -> None:
        raise StoreBusy(1.0)

    with recording(kept) as recorder:
        kept.refuse = refuse
        watch = recorder.watch(plan())
        assert watch.progress
        watch.progress("applied")
        recorder.settle("P", seconds=0.01)
        kept.refuse = lambda plan_id: None
        recorder.settle("P")
        assert kept.text("P") == "applied\n"


def test_stores_the_arguments_of_a_call_masked_and_cut() -> None:
    kept = Kept()
    arguments = {"path": "a.py", "password": "hunter22", "content": "x" * 3000}
    with recording(kept) as recorder:
        watch = recorder.watch(plan())
        assert watch.told
        call = Progress(ProgressKind.TOOL, "a/b", "model", "write a.py", tool="write", arguments=arguments)
        watch.told(call)
        watch.told(replace(call, arguments={"parts": ["y" * 1999] * 40}))
        recorder.end("P")
    marks = [json.loads(text) for _, kind, text in kept.pieces if kind == "node"]
    assert [mark["tool"] for mark in marks] == ["write", "write"]
    assert marks[0]["arguments"] == {"path": "a.py", "password": "***", "content": "x" * 2000 + "…"}
    assert marks[1]["arguments"] is None, "a node is one piece in the store"


def test_stores_tool_lines_at_full_length() -> None:
    kept, long = Kept(), "x" * 1000
    with recording(kept) as recorder:
        watch = recorder.watch(plan("P"))
        watch.told(Progress(ProgressKind.TOOL, "a/b", "model", f"command {long}"))
        watch.told(Progress(ProgressKind.TOOL_DONE, "a/b", "model", long, failed=True))
        watch.told(Progress(ProgressKind.TOOL, "a/b", "model", long * 10))
        recorder.end("P")
    lines = kept.text("P", "progress").splitlines()
    assert lines[:2] == [f"  command {long}", f"    it failed: {long}"]
    assert len(lines[2]) < 5000


def test_joins_a_character_split_over_two_chunks() -> None:
    kept = Kept()
    with recording(kept) as recorder:
        told = recorder.watch(plan()).on_output
        assert told is not None
        for byte in "naïve — ✓\n".encode():
            told(bytes([byte]))
        told(b"\xff half \xe2\x9c")
    assert kept.text("P") == "naïve — ✓\n\ufffd half \ufffd"


def test_masks_a_secret_split_over_two_pieces() -> None:
    kept = Kept()
    with recording(kept) as recorder:
        watch = recorder.watch(plan())
        assert watch.on_output
        assert watch.progress
        watch.on_output(b"before\nexport pass")
        kept.wait_for(lambda: "before" in kept.text("P"))
        watch.on_output(b"word=hunter2-hun")
        watch.progress("meanwhile")
        kept.wait_for(lambda: "meanwhile" in kept.text("P"))
        watch.on_output(b"ter2\n")
    assert kept.text("P", "output") == "before\nexport password=***\n"


def test_stores_each_model_answer_once() -> None:
    kept = Kept()
    with recording(kept) as recorder:
        told = recorder.watch(plan()).told
        assert told is not None
        told(Progress(ProgressKind.THOUGHT, "a/b", "silent", "all at once"))
        told(Progress(ProgressKind.PIECE, "a/b", "n", "bit by "))
        told(Progress(ProgressKind.PIECE, "a/b", "n", "bit"))
        told(Progress(ProgressKind.THOUGHT, "a/b", "n", "bit by bit"))
    assert kept.text("P") == "all at once\nbit by bit\n"


def test_drops_the_oldest_output_and_reports_the_gap() -> None:
    kept, held = Kept(), threading.Event()

    def hang(plan_id: str) -> None:
        held.wait(SECONDS)

    kept.refuse = hang
    with recording(kept, bound_characters=1000) as recorder:
        told = recorder.watch(plan()).on_output
        assert told is not None
        told(b"first\n")
        for number in range(1000):
            told(b"line %4d\n" % number)  # returns although nothing can be stored now
        held.set()
    text = kept.text("P")
    assert text.endswith("line  999\n")
    assert "characters dropped: output was too fast]\n" in text
    assert len(text) < 1200


def test_retries_failed_stores_without_delaying_other_plans() -> None:
    kept = Kept()
    broken = threading.Event()
    broken.set()

    def refuse(plan_id: str) -> None:
        if plan_id == "P" and broken.is_set():
            raise StoreBusy(1.0)

    kept.refuse = refuse
    with structlog.testing.capture_logs() as said, recording(kept, bound_characters=100) as recorder:
        for name in ("P", "Q"):
            told = recorder.watch(plan(name)).on_output
            assert told is not None
            told(b"x" * 90 + b"\nfrom %s\n" % name.encode())
        kept.wait_for(lambda: kept.text("Q").endswith("from Q\n"))
        assert kept.text("P") == ""
        tried = kept.refused
        kept.wait_for(lambda: kept.refused > tried + 2)
        broken.clear()
        kept.wait_for(lambda: kept.text("P").endswith("from P\n"))
    assert [line["event"] for line in said] == ["plan_output.not_kept"]  # once, however often it is retried


SLOW_SECRETS = {
    "a value after its name": (b"export password=", b"hunter2hunter2\n"),
    "a value in two parts": (b"password=hunter2", b"hunter2\n"),
    "a shape": (b"key: sk-abcdefgh", b"ijklmnopqrstuvwx\n"),
    "a shape that could have ended": (b"sk-abcdefghijklmnopqrstuvwx", b"yzhunter2\n"),
    "the password of a URL": (b"cloning https://me", b":hunter2hunter2@example.org/x.git\n"),
    "a signature": (b"GET /file?", b"sig=hunter2hunter2\n"),
    "a private key": (b"-----BEGIN PRIVATE KEY-----\nMIIEow", b"hunter2hunter2\n"),
    "a known value": (b"it is known-val", b"ue-hunter2\n"),
    "a quoted value": (b'secret = "first hunter2', b' second hunter2"\n'),
    "a secret too long to hold": (b"password=" + b"x" * 40_000, b"hunter2\n"),
}


@pytest.mark.parametrize("name", SLOW_SECRETS)
def test_masks_a_secret_across_a_long_pause(name: str) -> None:
    known = KnownSecrets()
    known.add("known-value-hunter2")
    first, second = SLOW_SECRETS[name]
    kept, clock = Kept(), FakeClock()
    recorder = OutputRecorder(kept, clock, bound_characters=1 << 20)
    told = recorder.watch(plan()).on_output
    assert told is not None
    told(first)
    recorder._keep_all()
    clock.advance(11)
    recorder._keep_all()
    recorder._keep_all()
    told(second)
    recorder.end("P")
    recorder._keep_all()
    text = kept.text("P")
    assert "hunter2" not in text
    assert not set(SHAPE_PARTS) & set(text.replace(":", " ").split())
    assert "***" in text
    assert recorder._texts == {}


SHAPE_PARTS = ("sk-abcdefgh", "ijklmnopqrstuvwx", "known-val", "MIIEow")


def test_keeps_a_character_split_by_a_long_pause() -> None:
    kept, clock = Kept(), FakeClock()
    recorder = OutputRecorder(kept, clock)
    told = recorder.watch(plan()).on_output
    assert told is not None
    for byte in "✓\n".encode():
        told(bytes([byte]))
        recorder._keep_all()
        clock.advance(11)
        recorder._keep_all()
    assert kept.text("P") == "✓\n"


def test_stores_a_partial_line_at_the_end_or_after_a_pause() -> None:
    kept, clock = Kept(), FakeClock()
    with recording(kept, clock) as recorder:
        told = recorder.watch(plan()).on_output
        assert told is not None
        told(b"done\nContinue? [y/N]")
        kept.wait_for(lambda: kept.text("P") == "done\nContinue? ")
        clock.advance(11)
        kept.wait_for(lambda: kept.text("P") == "done\nContinue? [y/N]")
        told(b" yes")
        recorder.end("P")
        kept.wait_for(lambda: kept.text("P") == "done\nContinue? [y/N] yes")


def test_stores_reports_of_many_threads_once() -> None:
    kept, each = Kept(), 3000
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with recording(kept, interval_seconds=0.0) as recorder:

            def tell(name: str) -> None:
                for number in range(each):
                    progress = recorder.watch(plan("P")).progress
                    assert progress is not None
                    progress(f"{name}{number}")

            threads = [threading.Thread(target=tell, args=(name,)) for name in "abcd"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SECONDS)
    finally:
        sys.setswitchinterval(before)
    lines = kept.text("P").splitlines()
    for name in "abcd":
        assert [line for line in lines if line[0] == name] == [f"{name}{n}" for n in range(each)]


def test_forgets_an_ended_plan() -> None:
    kept = Kept()
    with recording(kept) as recorder:
        for number in range(50):
            told = recorder.watch(plan(f"P{number}")).on_output
            assert told is not None
            told(b"x\n")
            recorder.end(f"P{number}")
        kept.wait_for(lambda: len(kept.pieces) >= 50)
    assert recorder._texts == {}
    assert recorder._told == {}
    recorder.close()


def test_every_report_holds_the_lock() -> None:
    """The recorder's thread replaces the lists; a change between its steps would be lost."""
    recorder = OutputRecorder(Kept(), FakeClock())
    held: list[bool] = []

    class Watched(dict[str, Any]):
        def setdefault(self, *asked: Any) -> Any:
            held.append(recorder._lock.locked())
            return super().setdefault(*asked)

    recorder._told = Watched()
    progress = recorder.watch(plan()).progress
    assert progress is not None
    progress("a line")
    recorder.end("P")
    assert held == [True, True]
