"""Changes, and the rules for recording and closing."""

from __future__ import annotations

import pytest

from cleveragents.core.change import ChangeEntry, ChangeKind, Changeset, RecordedChange
from cleveragents.core.errors import ChangesetClosed, DuplicateKey

ENTRY = ChangeEntry(ChangeKind.CREATE, "a.txt", after_hash="h1")


def test_numbers_count_from_one_without_a_gap():
    changeset = Changeset("c1", "p1")
    numbers = []
    for _ in range(3):
        changeset, recorded = changeset.appended(ENTRY)
        numbers.append(recorded.sequence)
    assert numbers == [1, 2, 3]
    assert changeset == Changeset("c1", "p1", length=3)


def test_a_record_names_its_changeset_and_its_key():
    _, recorded = Changeset("c1", "p1").appended(ENTRY, "k")
    assert recorded == RecordedChange("c1", 1, ENTRY, "k")


def test_a_sealed_changeset_takes_nothing_and_seals_again_harmlessly():
    sealed = Changeset("c1", "p1", length=2).sealed()
    assert sealed == Changeset("c1", "p1", closed=True, length=2)
    assert sealed.sealed() == sealed
    with pytest.raises(ChangesetClosed, match="c1"):
        sealed.appended(ENTRY)


def test_a_retry_gets_the_first_record_and_other_content_is_refused():
    first = RecordedChange("c1", 4, ENTRY, "k")
    assert first.repeated(ChangeEntry(ChangeKind.CREATE, "a.txt", after_hash="h1")) is first
    with pytest.raises(DuplicateKey, match="'k'"):
        first.repeated(ChangeEntry(ChangeKind.DELETE, "a.txt"))


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_refuses_impossible_paths(path):
    with pytest.raises(ValueError, match="not a path"):
        ChangeEntry(ChangeKind.CREATE, path)
    with pytest.raises(ValueError, match="not a path"):
        ChangeEntry(ChangeKind.RENAME, "a.txt", old_path=path)


@pytest.mark.parametrize(("kind", "old_path"), [(ChangeKind.RENAME, None), (ChangeKind.MODIFY, "b.txt")])
def test_a_rename_and_only_a_rename_has_an_old_path(kind, old_path):
    with pytest.raises(ValueError, match="old_path"):
        ChangeEntry(kind, "a.txt", old_path=old_path)


def test_accepts_a_change_kind_by_value_and_refuses_an_unknown_one():
    assert ChangeEntry("modify", "a.txt").kind is ChangeKind.MODIFY
    with pytest.raises(ValueError, match="explode"):
        ChangeEntry("explode", "a.txt")
