"""Conflict markers are found until the last one is gone; lines that only look alike are not markers."""

from __future__ import annotations

import os

import pytest

from cleveragents.changes.model.merge_conflict import MarkedText, mark_left_in
from cleveragents.core.text.control_characters import named_by, shown

LABELS = ("plan P", "sub-plan C")
OPENING, MIDDLE, CLOSING = "<<<<<<< plan P", "=======", ">>>>>>> sub-plan C"


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


OURS = text("top", "ours", "end")
THEIRS = text("top", "theirs", "end")
PLAIN = MarkedText(text("top", OPENING, "ours", MIDDLE, "theirs", CLOSING, "end"), OURS, THEIRS)


@pytest.mark.parametrize("mark", [OPENING, MIDDLE, CLOSING])
def test_finds_every_remaining_marker(mark: str) -> None:
    half = [line for line in PLAIN.left.decode().splitlines() if line not in (OPENING, MIDDLE, CLOSING)]
    half.insert(2, mark)
    assert mark_left_in(text(*half), PLAIN, LABELS) == mark


def test_finds_the_divider_of_an_empty_side() -> None:
    left = text("top", OPENING, MIDDLE, "theirs", CLOSING, "end")
    assert mark_left_in(text("top", MIDDLE, "theirs", "end"), MarkedText(left, text("top"), THEIRS), LABELS)
    left = text("top", OPENING, "ours", MIDDLE, CLOSING, "end")
    assert mark_left_in(text("top", "ours", MIDDLE, "end"), MarkedText(left, OURS, text("top")), LABELS)


def test_finds_markers_with_windows_line_ends() -> None:
    merged = MarkedText(*(part.replace(b"\n", b"\r\n") for part in (PLAIN.left, OURS, THEIRS)))
    edited = text("top", "ours", MIDDLE, "theirs", "end").replace(b"\n", b"\r\n")
    assert mark_left_in(edited, merged, LABELS) == MIDDLE


def test_finds_the_marker_of_the_base() -> None:
    bar = "||||||| 1234567"
    left = text("top", OPENING, "ours", bar, "old", MIDDLE, "theirs", CLOSING, "end")
    merged = MarkedText(left, OURS, THEIRS)
    assert mark_left_in(text("top", "ours", bar, "old", "end"), merged, LABELS) == bar
    assert mark_left_in(text("top", "ours", "old", MIDDLE, "theirs", "end"), merged, LABELS) == MIDDLE
    assert mark_left_in(text("top", "ours", "theirs", "end"), merged, LABELS) is None


HEADED = MarkedText(
    text("Title 1", MIDDLE, OPENING, "Title A", MIDDLE, "a", MIDDLE, "Title B", MIDDLE, "b", CLOSING, "end"),
    text("Title 1", MIDDLE, "Title A", MIDDLE, "a", "end"),
    text("Title 1", MIDDLE, "Title B", MIDDLE, "b", "end"),
)


@pytest.mark.parametrize(
    "lines",
    [
        ("Title 1", MIDDLE, "Title A", MIDDLE, "a", "end"),
        ("Title 1", MIDDLE, "Title B", MIDDLE, "b", "end"),
        ("Title 1", MIDDLE, "Title A", MIDDLE, "a", "Title B", MIDDLE, "b", "end"),
        ("Title 1", MIDDLE, "Titles!", MIDDLE, "a, b", "end"),
        ("all new",),
        (),
    ],
)
def test_headings_are_not_markers(lines: tuple[str, ...]) -> None:
    assert mark_left_in(text(*lines), HEADED, LABELS) is None


def test_finds_a_marker_between_headings() -> None:
    edited = text("Title 1", MIDDLE, "Title A", MIDDLE, "a", MIDDLE, "Title B", MIDDLE, "b", "end")
    assert mark_left_in(edited, HEADED, LABELS) == MIDDLE


def test_finds_longer_markers() -> None:
    left = text(
        "top", "<<<<<<<<< plan P", "ours", MIDDLE, "=========", "theirs", ">>>>>>>>> sub-plan C", "end"
    )
    merged = MarkedText(left, text("top", "ours", MIDDLE, "end"), THEIRS)
    assert mark_left_in(text("top", "ours", MIDDLE, "theirs", "end"), merged, LABELS) is None
    assert mark_left_in(text("top", "ours", "=========", "theirs", "end"), merged, LABELS) == "========="


def test_markers_of_other_merges_are_text() -> None:
    foreign = text("top", "<<<<<<< HEAD", "x", MIDDLE, "y", ">>>>>>> other", "end")
    merged = MarkedText(PLAIN.left, foreign, THEIRS)
    assert mark_left_in(foreign, merged, LABELS) is None
    # A marker that has no matching start or end divides nothing.
    assert mark_left_in(text(MIDDLE), MarkedText(text(CLOSING, OPENING, MIDDLE), b"", b""), LABELS) is None


NAMES = {
    "a b.txt": "a b.txt",
    "käse": "käse",
    "new\nline": '"new\\nline"',
    "\x1b[31mred": '"\\033[31mred"',
    'say "hi"': '"say \\"hi\\""',
    "back\\slash": '"back\\\\slash"',
    "new\\nline": '"new\\\\nline"',
    os.fsdecode(b"caf\xe9"): '"caf\\351"',
    "caf\\351": '"caf\\\\351"',
    "left\u202eright": '"left\\342\\200\\256right"',
}


@pytest.mark.parametrize("name", NAMES)
def test_a_shown_name_is_harmless_and_reversible(name: str) -> None:
    assert shown(name) == NAMES[name]
    assert named_by(shown(name)) == name


def test_shown_names_are_unique() -> None:
    spellings = [shown(name) for name in (*NAMES, *map(shown, NAMES))]
    assert len(set(spellings)) == len({*NAMES, *map(shown, NAMES)})


@pytest.mark.parametrize("told", ["a.txt", '"', '"half', '"a"b"', '"\\9"', '"\\777"'])
def test_plain_text_names_itself(told: str) -> None:
    assert named_by(told) == told


def test_shows_impossible_names() -> None:
    assert shown("\ud800") == '"\\355\\240\\200"'
    assert named_by('"\ud800"') == os.fsdecode(b"\xed\xa0\x80")
