"""Folding recorded changes gives the actual result, in any order and of any kind."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.core.change import (
    EXECUTABLE,
    GITLINK,
    REGULAR,
    SYMLINK,
    ChangeEntry,
    ChangeKind,
    Difference,
    FileState,
    differences_of,
    entries_between,
    split_renames,
    states_after,
)

X, Y, RUN_X = FileState(REGULAR, "x"), FileState(REGULAR, "y"), FileState(EXECUTABLE, "x")

Tree = dict[str, FileState]

# Few names and few contents, so that renames, swaps, recreations and reversals really occur.
PATHS = st.sampled_from(["a", "b", "c", "d/a", "d/b", "ü \udcff"])
STATES = st.builds(
    FileState, st.sampled_from([REGULAR, EXECUTABLE, SYMLINK, GITLINK]), st.sampled_from(["x", "y", "z"])
)
TREES = st.dictionaries(PATHS, STATES, max_size=6)
# A step is one tool call: any number of files, to any state, or deleted.
STEPS = st.lists(st.dictionaries(PATHS, st.none() | STATES, max_size=5), max_size=6)


def edited(tree: Tree, step: Mapping[str, FileState | None]) -> Tree:
    after = {**tree, **{path: state for path, state in step.items() if state is not None}}
    return {path: state for path, state in after.items() if step.get(path, state) is not None}


def compared(one: Tree, other: Tree, *, unchanged: bool = False) -> dict[str, Difference]:
    """Return the differences found by comparing both trees directly."""
    both = {path: Difference(one.get(path), other.get(path)) for path in {*one, *other}}
    return {path: step for path, step in both.items() if unchanged or step.before != step.after}


@given(TREES, STEPS)
@settings(max_examples=150, deadline=None)
def test_the_fold_of_all_entries_is_the_difference_of_first_and_last_tree(
    base: Tree, steps: list[Tree]
) -> None:
    tree, entries, touched = base, [], set()
    for step in steps:
        after = edited(tree, step)
        # A scan may list unchanged files; they must not be recorded.
        found = compared(tree, after, unchanged=True)
        made = entries_between(found, tool_call_id="call")
        assert all(entry.tool_call_id == "call" for entry in made)
        assert differences_of(made) == compared(tree, after)
        touched |= compared(tree, after).keys()
        entries += made
        tree = after
    assert differences_of(entries) == compared(base, tree)
    assert states_after(entries) == {path: tree.get(path) for path in touched}


@given(TREES, TREES)
@settings(max_examples=100, deadline=None)
def test_each_path_appears_once_and_renames_pair_equal_files(before: Tree, after: Tree) -> None:
    differences = compared(before, after)
    entries = entries_between(differences)
    named = [path for entry in entries for path, _, _ in split_renames(entry)]
    assert sorted(named) == sorted(differences)
    assert [entry.path for entry in entries] == sorted(entry.path for entry in entries)
    for entry in entries:
        if entry.kind is ChangeKind.RENAME:
            assert entry.old_path is not None
            assert before[entry.old_path] == after[entry.path]
            assert (entry.old_path in after, entry.path in before) == (False, False)
    # As many as possible are paired.
    gone = [state for path, state in before.items() if path not in after]
    new = [state for path, state in after.items() if path not in before]
    pairs = sum(min(gone.count(state), new.count(state)) for state in set(gone))
    assert sum(entry.kind is ChangeKind.RENAME for entry in entries) == pairs


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (None, X, ChangeKind.CREATE),
        (X, None, ChangeKind.DELETE),
        (X, Y, ChangeKind.MODIFY),
        (X, RUN_X, ChangeKind.MODE),
        (RUN_X, Y, ChangeKind.MODIFY),
        (X, FileState(SYMLINK, "x"), ChangeKind.MODE),
    ],
)
def test_an_entry_holds_both_states_and_its_kind(
    before: FileState | None, after: FileState | None, kind: ChangeKind
) -> None:
    [entry] = entries_between({"f": Difference(before, after)})
    assert (entry.kind, entry.path, entry.old_path, entry.tool_call_id) == (kind, "f", None, None)
    assert (entry.before_mode, entry.before_hash) == (
        (before.mode, before.content) if before else (None, None)
    )
    assert (entry.mode, entry.after_hash) == ((after.mode, after.content) if after else (None, None))


def test_a_rename_names_both_paths_and_keeps_the_state() -> None:
    [entry] = entries_between({"new": Difference(None, RUN_X), "old": Difference(RUN_X, None)})
    assert entry == ChangeEntry(
        ChangeKind.RENAME, "new", "x", "x", old_path="old", mode=EXECUTABLE, before_mode=EXECUTABLE
    )
    assert list(split_renames(entry)) == [("old", RUN_X, None), ("new", None, RUN_X)]


def test_a_move_that_also_changes_mode_or_content_is_a_deletion_and_a_creation() -> None:
    for after in (RUN_X, Y):
        entries = entries_between({"new": Difference(None, after), "old": Difference(X, None)})
        assert [(entry.kind, entry.path) for entry in entries] == [
            (ChangeKind.CREATE, "new"),
            (ChangeKind.DELETE, "old"),
        ]


def test_a_move_over_another_file_is_a_change_and_a_deletion() -> None:
    entries = entries_between({"a": Difference(X, None), "b": Difference(Y, X)})
    assert [(entry.kind, entry.path) for entry in entries] == [
        (ChangeKind.DELETE, "a"),
        (ChangeKind.MODIFY, "b"),
    ]
    assert differences_of(entries) == {"a": Difference(X, None), "b": Difference(Y, X)}


def test_pairs_the_first_of_several_possible_renames_by_path() -> None:
    entries = entries_between(
        {
            "z": Difference(None, X),
            "y": Difference(None, X),
            "b": Difference(X, None),
            "a": Difference(X, None),
            "c": Difference(X, None),
        }
    )
    assert [(entry.kind.value, entry.path, entry.old_path) for entry in entries] == [
        ("delete", "c", None),
        ("rename", "y", "a"),
        ("rename", "z", "b"),
    ]


def test_a_path_that_returns_to_its_first_state_is_touched_but_not_different() -> None:
    there = entries_between({"f": Difference(X, Y), "g": Difference(None, X)})
    back = entries_between({"f": Difference(Y, X), "g": Difference(X, None)})
    assert differences_of([*there, *back]) == {}
    assert states_after([*there, *back]) == {"f": X, "g": None}


def test_a_file_that_was_deleted_and_made_again_is_one_change() -> None:
    gone = entries_between({"f": Difference(X, None)})
    again = entries_between({"f": Difference(None, RUN_X)})
    assert differences_of([*gone, *again]) == {"f": Difference(X, RUN_X)}


def test_a_chain_of_renames_ends_at_its_ends() -> None:
    first = entries_between({"a": Difference(X, None), "b": Difference(None, X)})
    second = entries_between({"b": Difference(X, None), "c": Difference(None, X)})
    assert differences_of([*first, *second]) == {"a": Difference(X, None), "c": Difference(None, X)}
    assert states_after([*first, *second]) == {"a": None, "b": None, "c": X}


def test_an_entry_without_a_mode_is_a_regular_file() -> None:
    entry = ChangeEntry(ChangeKind.MODIFY, "f", "x", "y")
    assert list(split_renames(entry)) == [("f", X, Y)]


def test_no_changes_give_no_entries() -> None:
    assert entries_between({}) == []
    assert entries_between({"f": Difference(X, X), "g": Difference(None, None)}) == []
    assert differences_of([]) == {}
    assert states_after([]) == {}
