"""The bar of the index: what it says, when it says nothing, and that it is still once it was left."""

from __future__ import annotations

import sys
import threading
from io import StringIO

import pytest

from cleveragents.cli.render.index_progress import IndexBar

DEADLINE = 30.0


class Stream(StringIO):
    """Says whether it is a terminal when it is let to, and what was written after it should be still."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self.terminal = terminal
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.still = False
        self.late: list[str] = []

    def isatty(self) -> bool:
        self.asked.set()
        assert self.may_answer.wait(DEADLINE)
        return self.terminal

    def write(self, text: str) -> int:
        if self.still:
            self.late.append(text)
        return super().write(text)


def test_elsewhere_than_on_a_terminal_it_says_a_line_at_the_beginning_and_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    with IndexBar() as bar:
        for done in (1, 2, 3, 1000):
            bar.moved(done, 1000)
    assert stream.getvalue().splitlines() == [
        "indexing: 1 of 1,000 files",
        "indexing: 1,000 of 1,000 files",
    ]


def test_a_terminal_gets_a_bar_that_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    threads = threading.active_count()
    with IndexBar() as bar:
        bar.moved(10, 1000)
        bar.moved(600, 1000)
    assert "indexing" in stream.getvalue()
    assert threading.active_count() == threads


def test_few_files_are_not_worth_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    with IndexBar() as bar:
        bar.moved(5, 10)
    assert stream.getvalue() == ""


def test_nothing_is_drawn_after_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream()
    stream.may_answer.clear()
    monkeypatch.setattr(sys, "stderr", stream)
    bar = IndexBar()

    def leave() -> None:
        bar.__exit__(None, None, None)
        stream.still = True

    teller = threading.Thread(target=bar.moved, args=(1, 1000))
    leaver = threading.Thread(target=leave)
    teller.start()
    assert stream.asked.wait(DEADLINE)
    leaver.start()
    leaver.join(0.3)  # it waits for who is drawing; if it did not, it would be done by now
    stream.may_answer.set()
    for thread in (teller, leaver):
        thread.join(DEADLINE)
    bar.moved(1000, 1000)
    assert stream.late == []
