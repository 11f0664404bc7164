"""The result of a plan after some of it is rejected: exactly the rest, or a conflict, never a guess.

Content is its own name here, and git merges it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.changes.model.review import MergeContent, Review, ReviewKind, accepted_states
from cleveragents.core.change import (
    EXECUTABLE,
    GITLINK,
    REGULAR,
    SYMLINK,
    ChangeEntry,
    ChangeKind,
    Difference,
    FileState,
    RecordedChange,
    differences_of,
    entries_between,
)
from cleveragents.core.errors import PlanError

Tree = dict[str, FileState]

LINES = [f"line {number}" for number in range(12)]
BASE = "\n".join(LINES) + "\n"
X, Y, Z = (FileState(REGULAR, f"{name}\n") for name in "xyz")
MADE, GONE = Difference(None, X), Difference(X, None)


def no_merge(ancestor: str, ours: str, theirs: str) -> str | None:
    raise AssertionError("there is nothing to merge here")


class GitMerge:
    """`git merge-file` on content; counts its merges."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.merges = 0

    def __call__(self, ancestor: str, ours: str, theirs: str) -> str | None:
        self.merges += 1
        for name, text in (("ours", ours), ("ancestor", ancestor), ("theirs", theirs)):
            (self.directory / name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["git", "merge-file", "-p", "ours", "ancestor", "theirs"],
            cwd=self.directory,
            capture_output=True,
            check=False,
        )
        assert done.returncode < 128, done.stderr
        return None if done.returncode else done.stdout.decode()


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> GitMerge:
    return GitMerge(tmp_path_factory.mktemp("merge"))


def recorded(steps: Sequence[Mapping[str, Difference]]) -> list[RecordedChange]:
    """One changeset per step: c0, c1, …"""
    return [
        RecordedChange(f"c{number}", sequence, entry)
        for number, step in enumerate(steps)
        for sequence, entry in enumerate(entries_between(step), start=1)
    ]


def edits(*texts: str, path: str = "f") -> list[dict[str, Difference]]:
    """Return the steps that take one file from text to text."""
    states = [FileState(REGULAR, text) for text in texts]
    return [{path: Difference(*pair)} for pair in pairwise(states)]


def without(*subjects: str, kind: ReviewKind = ReviewKind.CHANGESET) -> list[Review]:
    return [Review("p", kind, subject, accepted=False) for subject in subjects]


def replaced(text: str, number: int, line: str) -> str:
    lines = text.split("\n")
    lines[number] = line
    return "\n".join(lines)


def left(
    steps: Sequence[Mapping[str, Difference]], reviews: Sequence[Review], merge: MergeContent = no_merge
) -> dict[str, FileState | None]:
    return accepted_states("p", recorded(steps), reviews, merge)


PATHS = st.sampled_from(["a", "b", "c", "d"])
STATES = st.builds(FileState, st.sampled_from([REGULAR, EXECUTABLE]), st.sampled_from(["x\n", "y\n", "z\n"]))
TREES = st.dictionaries(PATHS, STATES)
# The states of the files, changeset by changeset.
TREE_LISTS = st.lists(TREES, min_size=1, max_size=6)


def steps_between(trees: Sequence[Tree], prefix: str = "") -> list[dict[str, Difference]]:
    return [
        {
            prefix + path: Difference(one.get(path), other.get(path))
            for path in {*one, *other}
            if one.get(path) != other.get(path)
        }
        for one, other in pairwise(trees)
    ]


def folded(changes: Sequence[RecordedChange]) -> dict[str, FileState | None]:
    return {path: step.after for path, step in differences_of(c.entry for c in changes).items()}


@given(TREE_LISTS)
@settings(max_examples=100, deadline=None)
def test_rejecting_nothing_keeps_all_and_rejecting_all_keeps_nothing(trees: list[Tree]) -> None:
    changes = recorded(steps_between(trees))
    everything = folded(changes)
    accepted = [Review("p", ReviewKind.PATH, "a", True), Review("p", ReviewKind.CHANGESET, "c0", True)]
    assert accepted_states("p", changes, [], no_merge) == everything
    assert accepted_states("p", changes, accepted, no_merge) == everything
    # Also without a shortcut: a verdict on an unknown changeset.
    assert accepted_states("p", changes, without("elsewhere"), no_merge) == everything
    all_changesets = without(*{change.changeset_id for change in changes})
    assert accepted_states("p", changes, all_changesets, no_merge) == {}
    assert accepted_states("p", changes, without(*"abcd", kind=ReviewKind.PATH), no_merge) == {}


@given(TREE_LISTS, TREE_LISTS)
@settings(max_examples=100, deadline=None)
def test_rejecting_changesets_that_touch_other_files_leaves_the_fold_of_the_rest(
    kept: list[Tree], dropped: list[Tree]
) -> None:
    ours, theirs = steps_between(kept), steps_between(dropped, "other/")
    steps: list[dict[str, Difference]] = []
    bad: list[str] = []
    for number in range(max(len(ours), len(theirs))):
        if number < len(theirs):
            bad.append(f"c{len(steps)}")
            steps.append(theirs[number])
        steps += ours[number : number + 1]
    changes = recorded(steps)
    rest = [change for change in changes if change.changeset_id not in bad]
    assert accepted_states("p", changes, without(*bad), no_merge) == folded(rest)


@given(TREE_LISTS, st.integers(0, 6))
@settings(max_examples=100, deadline=None)
def test_rejecting_the_last_change_keeps_earlier_ones(trees: list[Tree], cut: int) -> None:
    changes = recorded(steps_between(trees))
    early = [change for change in changes if change.changeset_id < f"c{cut}"]
    late = {change.changeset_id for change in changes} - {change.changeset_id for change in early}
    assert accepted_states("p", changes, without(*late), no_merge) == folded(early)


@given(st.permutations([1, 5, 9]), st.sets(st.integers(0, 2)))
@settings(max_examples=20, deadline=None)
def test_separates_edits_in_different_places(git: GitMerge, places: list[int], rejected: set[int]) -> None:
    texts = [BASE]
    for place in places:
        texts.append(replaced(texts[-1], place, f"edited {place}"))
    wanted = BASE
    for number, place in enumerate(places):
        if number not in rejected:
            wanted = replaced(wanted, place, f"edited {place}")
    result = left(edits(*texts), without(*(f"c{number}" for number in rejected)), git)
    assert result == ({} if wanted == BASE else {"f": FileState(REGULAR, wanted)})


@given(
    st.lists(st.tuples(st.integers(0, 11), st.sampled_from(["replace", "insert", "delete"])), max_size=4),
    st.sets(st.integers(0, 3)),
)
@settings(max_examples=40, deadline=None)
def test_rejected_edits_never_get_in(git: GitMerge, plan: list[tuple[int, str]], rejected: set[int]) -> None:
    texts = [BASE]
    for number, (place, how) in enumerate(plan):
        lines = texts[-1].split("\n")
        new = [] if how == "delete" else [f"by c{number}"]
        lines[place : place + (how != "insert")] = new
        texts.append("\n".join(lines))
    try:
        result = left(edits(*texts), without(*(f"c{number}" for number in rejected)), git)
    except PlanError:
        assert rejected
        return
    state = result.get("f", FileState(REGULAR, BASE))
    assert state is not None
    said = set(state.content.split("\n")) - set(LINES) - {""}
    assert not said & {f"by c{number}" for number in rejected}


def test_a_later_change_in_the_same_place_is_a_conflict_that_names_the_file(git: GitMerge) -> None:
    steps = edits(BASE, replaced(BASE, 3, "one"), replaced(BASE, 3, "two"))
    with pytest.raises(PlanError, match="plan p: f: an accepted change builds on a rejected one"):
        left(steps, without("c0"), git)


def test_a_conflict_is_settled_by_rejecting_the_later_change_or_the_whole_file(git: GitMerge) -> None:
    steps = [*edits(BASE, replaced(BASE, 3, "one"), replaced(BASE, 3, "two")), {"g": MADE}]
    assert left(steps, without("c0", "c1"), git) == {"g": X}
    whole = [*without("c0"), *without("f", kind=ReviewKind.PATH)]
    assert left(steps, whole, git) == {"g": X}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([{"f": Difference(None, X)}, {"f": Difference(X, Y)}], id="a change of a new file"),
        pytest.param([{"f": Difference(X, None)}, {"f": Difference(None, Y)}], id="made anew"),
        pytest.param([{"f": Difference(X, Y)}, {"f": Difference(Y, None)}], id="deleted after a change"),
        pytest.param(
            [{"a": GONE, "b": MADE}, {"b": Difference(X, Y)}], id="a change of a file that was renamed"
        ),
        pytest.param(
            [{"a": Difference(X, Y)}, {"a": Difference(Y, None), "b": Difference(None, Y)}],
            id="a rename of a file that was changed",
        ),
    ],
)
def test_a_change_that_depends_on_a_rejected_one_is_a_conflict(
    steps: list[dict[str, Difference]],
) -> None:
    with pytest.raises(PlanError, match="builds on a rejected one"):
        left(steps, without("c0"))


def test_equal_results_are_no_conflict() -> None:
    """A file that a rejected change made and an accepted one deleted is missing either way."""
    assert left([{"f": MADE}, {"f": GONE}], without("c0")) == {}
    assert left([{"f": Difference(X, Y)}, {"f": Difference(Y, X)}], without("c0")) == {}
    assert left([{"f": Difference(X, None)}, {"f": Difference(None, X)}], without("c0")) == {}


def test_merges_mode_and_content_separately() -> None:
    run_x, run_y = FileState(EXECUTABLE, X.content), FileState(EXECUTABLE, Y.content)
    mode_then_content = [{"f": Difference(X, run_x)}, {"f": Difference(run_x, run_y)}]
    assert left(mode_then_content, without("c0")) == {"f": Y}
    content_then_mode = [{"f": Difference(X, Y)}, {"f": Difference(Y, run_y)}]
    assert left(content_then_mode, without("c0")) == {"f": run_x}


def test_content_and_mode_apply_on_top_of_the_rest(git: GitMerge) -> None:
    one, two = replaced(BASE, 1, "one"), replaced(replaced(BASE, 1, "one"), 9, "two")
    steps = [
        {"f": Difference(FileState(REGULAR, BASE), FileState(REGULAR, one))},
        {"f": Difference(FileState(REGULAR, one), FileState(EXECUTABLE, two))},
    ]
    assert left(steps, without("c0"), git) == {"f": FileState(EXECUTABLE, replaced(BASE, 9, "two"))}


@pytest.mark.parametrize("mode", [SYMLINK, GITLINK])
def test_links_and_submodules_are_never_merged_as_text(mode: int) -> None:
    first, second, third = (FileState(mode, name) for name in ("here", "there", "elsewhere"))
    steps = [{"l": Difference(first, second)}, {"l": Difference(second, third)}]
    with pytest.raises(PlanError, match=r"^plan p: l: "):
        left(steps, without("c0"))
    turned = [{"l": Difference(X, first)}, {"l": Difference(first, FileState(EXECUTABLE, first.content))}]
    with pytest.raises(PlanError, match=r"^plan p: l: "):
        left(turned, without("c0"))


def test_leaves_out_only_the_rejected_file() -> None:
    steps = [{"f": MADE, "g": Difference(Y, X)}, {"f": Difference(X, Z)}]
    assert left(steps, without("f", kind=ReviewKind.PATH)) == {"g": X}
    assert left(steps, without("g", kind=ReviewKind.PATH)) == {"f": Z}


def test_a_file_named_like_a_changeset_is_a_file() -> None:
    steps = [{"f": MADE}, {"c0": Difference(None, Y)}]
    both = [*without("c0"), *without("c0", kind=ReviewKind.PATH)]
    assert left(steps, without("c0", kind=ReviewKind.PATH)) == {"f": X}
    assert left(steps, without("c0")) == {"c0": Y}
    assert left(steps, both) == {}
    assert left(steps, both[::-1]) == {}


@pytest.mark.parametrize("name", ["a", "b"])
def test_either_name_rejects_a_rename(name: str) -> None:
    steps = [{"a": GONE, "b": MADE}, {"g": Difference(Y, Z)}]
    assert left(steps, without(name, kind=ReviewKind.PATH)) == {"g": Z}
    later = [{"a": GONE, "b": MADE}, {"b": Difference(X, Y)}]
    assert left(later, without(name, kind=ReviewKind.PATH)) == {}


def test_rejects_a_chain_of_renames_as_a_whole() -> None:
    steps = [{"a": GONE, "b": MADE}, {"b": GONE, "c": MADE}, {"g": Difference(Y, Z)}]
    for name in "ac":
        assert left(steps, without(name, kind=ReviewKind.PATH)) == {"g": Z}
    assert left(steps, without("b", kind=ReviewKind.PATH)) == {"a": None, "c": X, "g": Z}


def test_a_new_file_under_the_old_name_has_its_own_verdict() -> None:
    steps = [{"a": GONE, "b": MADE}, {"a": Difference(None, Y)}]
    assert left(steps, without("b", kind=ReviewKind.PATH)) == {"a": Y}
    assert left(steps, without("a", kind=ReviewKind.PATH)) == {"b": X}


def test_rejecting_a_changeset_reverts_its_rename() -> None:
    steps = [{"a": GONE, "b": MADE}, {"g": Difference(Y, Z)}]
    assert left(steps, without("c0")) == {"g": Z}


def test_reads_an_entry_of_a_single_rename() -> None:
    entry = ChangeEntry(ChangeKind.RENAME, "b", "h", "h", old_path="a")
    change = RecordedChange("c0", 1, entry)
    assert accepted_states("p", [change], [], no_merge) == {"a": None, "b": FileState(REGULAR, "h")}
