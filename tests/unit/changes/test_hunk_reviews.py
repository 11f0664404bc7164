"""Hunks that are left out have the lines of the base again; verdicts on other blobs are lapsed."""

from __future__ import annotations

from hashlib import sha1

from hypothesis import given
from hypothesis import strategies as st

from cleveragents.changes.model.review import (
    HunkId,
    Review,
    ReviewKind,
    lapsed_hunks,
    rejected_hunks,
    without_hunks,
)
from cleveragents.core.change import REGULAR, FileState


class Store:
    """Contents by name."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def keep(self, content: bytes) -> str:
        name = sha1(content, usedforsecurity=False).hexdigest()
        self.kept[name] = content
        return name


def left(old: bytes, new: bytes, *ranges: tuple[int, int, int, int], path: str = "f") -> bytes | None:
    """Return the file after these hunks were left out; None if it is not changed any more."""
    store = Store()
    before, after = FileState(REGULAR, store.keep(old)), FileState(REGULAR, store.keep(new))
    hunks = [HunkId(path, before.content, after.content, *one) for one in ranges]
    found = without_hunks({"f": after}, {"f": before}, hunks, store.kept.__getitem__, store.keep)
    state = found.get("f")
    return None if state is None else store.kept[state.content]


OLD = b"a\nb\nc\nd\ne\n"
NEW = b"A\na\nb\nc\nd\nE"


def test_one_of_two_hunks_is_left_out() -> None:
    assert left(OLD, NEW, (1, 1, 1, 2)) == b"a\nb\nc\nd\nE"
    assert left(OLD, NEW, (5, 1, 6, 1)) == b"A\na\nb\nc\nd\ne\n"


def test_a_file_without_any_hunk_is_not_changed() -> None:
    assert left(OLD, NEW, (1, 1, 1, 2), (5, 1, 6, 1)) is None


def test_an_empty_side_is_replaced_as_a_whole() -> None:
    assert left(b"", b"x\n", (0, 0, 1, 1)) is None
    assert left(b"x\n", b"", (1, 1, 0, 0)) is None


def test_a_changed_mode_stays() -> None:
    store = Store()
    before, after = FileState(REGULAR, store.keep(b"a\n")), FileState(0o100755, store.keep(b"b\n"))
    hunk = HunkId("f", before.content, after.content, 1, 1, 1, 1)
    found = without_hunks({"f": after}, {"f": before}, [hunk], store.kept.__getitem__, store.keep)
    assert found == {"f": FileState(0o100755, before.content)}


def test_a_verdict_lapses_when_a_blob_changes() -> None:
    store = Store()
    before, after = FileState(REGULAR, store.keep(OLD)), FileState(REGULAR, store.keep(NEW))
    for stale in (
        HunkId("f", "another", after.content, 1, 1, 1, 2),
        HunkId("f", before.content, "another", 1, 1, 1, 2),
        HunkId("g", before.content, after.content, 1, 1, 1, 2),
    ):
        found = without_hunks({"f": after}, {"f": before}, [stale], store.kept.__getitem__, store.keep)
        assert found == {"f": after}


def lapsed(*verdicts: tuple[HunkId, bool], now: FileState | None = None) -> list[HunkId]:
    """Return the lapsed hunks if `f` had the blob `old` and has the state `now`."""
    kept = [Review("p", ReviewKind.HUNK, hunk.subject, accepted) for hunk, accepted in verdicts]
    return lapsed_hunks(kept, {"f": now}, {"f": FileState(REGULAR, "old")})


def test_a_rejected_hunk_of_an_earlier_version_needs_a_new_verdict() -> None:
    now = FileState(REGULAR, "now")
    unwanted = HunkId("f", "old", "earlier", 10, 7, 10, 7)
    same = HunkId("f", "old", "now", 10, 7, 12, 9)
    elsewhere = HunkId("f", "old", "now", 30, 7, 32, 7)
    assert lapsed((unwanted, False), now=now) == [unwanted]
    assert lapsed((unwanted, True), now=now) == []
    assert lapsed((unwanted, False), (elsewhere, False), now=now) == [unwanted]
    assert lapsed((unwanted, False), (same, False), now=now) == []
    assert lapsed((unwanted, False), (same, True), now=now) == []
    assert lapsed((unwanted, False), now=FileState(REGULAR, "earlier")) == []  # in effect
    assert lapsed((unwanted, False), now=FileState(REGULAR, "old")) == []  # the file is not changed
    assert lapsed((unwanted, False)) == [unwanted]  # a renamed file may contain the hunk


def test_created_and_deleted_files_have_no_hunks() -> None:
    state = FileState(REGULAR, "blob")
    hunk = HunkId("f", "blob", "blob", 1, 1, 1, 1)
    for now, before in ((state, None), (None, state)):
        found = without_hunks({"f": now}, {"f": before}, [hunk], lambda name: b"", lambda content: "")
        assert found == {"f": now}


def test_a_stored_verdict_is_read_back() -> None:
    hunk = HunkId("odd \udcff name", "a", "b", 1, 2, 3, 4)
    kept = [Review("p", ReviewKind.HUNK, hunk.subject, accepted) for accepted in (False, True)]
    assert rejected_hunks([*kept, Review("p", ReviewKind.PATH, "f", False)]) == [hunk]


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n"]), max_size=8)


@given(st.lists(st.tuples(LINES, LINES, st.booleans()), min_size=1, max_size=4), st.booleans())
def test_accepted_hunks_are_applied_and_no_other(
    parts: list[tuple[list[bytes], list[bytes], bool]], ends: bool
) -> None:
    """Each part is a hunk, with a line that no hunk touches after it."""
    old: list[bytes] = []
    new: list[bytes] = []
    wanted: list[bytes] = []
    ranges: list[tuple[int, int, int, int]] = []
    for number, (before, after, accepted) in enumerate(parts):
        between = f"-- {number}\n".encode()
        if not accepted:
            ranges.append((len(old) + 1, len(before), len(new) + 1, len(after)))
        old += [*before, between]
        new += [*after, between]
        wanted += [*(after if accepted else before), between]
    tail = b"" if ends else b"no newline"
    expected = b"".join(wanted) + tail
    found = left(b"".join(old) + tail, b"".join(new) + tail, *ranges)
    assert (b"".join(old) + tail if found is None else found) == expected
