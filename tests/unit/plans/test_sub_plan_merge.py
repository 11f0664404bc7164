"""Merges of sub-plans into their parent's sandbox; conflicts stay until they are resolved."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from cleveragents.changes.model.merge_conflict import (
    DIRECTORY,
    MergeConflict,
    MergeOutcome,
    Take,
    part_of_merge,
)
from cleveragents.changes.model.review import HunkId, Review, ReviewKind
from cleveragents.core.change import EXECUTABLE, REGULAR, SYMLINK
from cleveragents.core.errors import (
    Cancelled,
    NeedsHuman,
    PlanError,
    SandboxMissing,
    StalePlan,
    ToolRefused,
    UnknownTool,
)
from cleveragents.core.event import EventType
from cleveragents.core.json_value import freeze
from cleveragents.core.tool import CallState
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.plans.calls.tool_execution import ToolExecution
from cleveragents.plans.conflicts.resolution import ManualResolution, conflict_task, settle_edited
from cleveragents.plans.model.plan import Phase, Plan, PlanState
from cleveragents.plans.tools.conflict_tools import ConflictEnvironment, ConflictTools
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.testing.clock import RaiseAt
from tests.merge_stand import MergeStand, Worker
from tests.sandbox_resources import git, make_repository, write

LINES = [f"line {number}" for number in range(1, 21)]
FILES: dict[str, str | bytes] = {
    "a.txt": "\n".join([*LINES, ""]),
    "gone.txt": "to be deleted\n",
    "kept.txt": "to be changed\n",
    "pixel.bin": b"\0\1\2",
    "place": "a file\n",
    "tree/leaf": "a leaf\n",
    "old/one": "\n".join([*LINES, "one", ""]),
    "old/two": "\n".join([*LINES, "two", ""]),
    "name": "\n".join([*LINES, "a name", ""]),
    ".gitattributes": "CHANGES merge=union\n",
    "CHANGES": "first\n",
    ".gitignore": "*.tmp\n",
}


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MergeStand]:
    home = tmp_path_factory.mktemp("sub_plan_merge")
    repository = make_repository(home / "repository", FILES)
    write(repository, {"tracked.tmp": "tracked, though a rule hides it\n"})
    git(repository, "add", "--force", "tracked.tmp")
    git(repository, "commit", "-qm", "tracked")
    made = MergeStand(home, repository)
    with made.container:
        yield made


@pytest.fixture
def parent(stand: MergeStand) -> Worker:
    return stand.parent()


def with_line(number: int, text: str, *more: tuple[int, str]) -> str:
    """Return `a.txt` with other lines, counted from 1."""
    lines = list(LINES)
    for at, new in ((number, text), *more):
        lines[at - 1] = new
    return "\n".join([*lines, ""])


def ensure_recorded(stand: MergeStand, worker: Worker) -> None:
    """Assert that its files match its records."""
    assert stand.parts.history.unrecorded(worker.plan.id, worker.sandbox) == {}


def merged(stand: MergeStand, parent: Worker, *children: Worker) -> dict[str, MergeConflict]:
    """Merge these and return all conflicts, by path."""
    found: dict[str, MergeConflict] = {}
    for part, child in enumerate(children, start=1):
        outcome = stand.merge(parent, child, str(part))
        found |= {conflict.path: conflict for conflict in outcome.conflicts}
    ensure_recorded(stand, parent)
    return found


def disagreeing(stand: MergeStand, parent: Worker) -> MergeConflict:
    """Return the one conflict of two children that changed line 5, and other lines of the same file."""
    one, other = stand.child(parent, "the one"), stand.child(parent, "the other")
    one.writes({"a.txt": with_line(5, "ours", (1, "top"))})
    other.writes({"a.txt": with_line(5, "theirs", (20, "bottom"))})
    (conflict,) = merged(stand, parent, one, other).values()
    return conflict


def at_rest(stand: MergeStand, worker: Worker) -> Worker:
    """The same, for a plan without a worker."""
    now = stand.container.clock.now()
    stand.parts.plans.move(worker.plan, (Phase.ACTION, PlanState.ERRORED), now=now)
    return stand.found(worker.plan.id)


def test_merges_changes_of_several_children(stand: MergeStand, parent: Worker) -> None:
    one, other = stand.child(parent, "the one"), stand.child(parent, "the other")
    one.writes({"a.txt": with_line(2, "by the one"), "new.txt": "new\n"})
    other.writes({"a.txt": with_line(19, "by the other"), "gone.txt": None})
    assert merged(stand, parent, one, other) == {}
    assert parent.text("a.txt") == with_line(2, "by the one", (19, "by the other"))
    assert parent.text("new.txt") == "new\n"
    assert not (parent.sandbox.root / "gone.txt").exists()
    assert stand.sub_plan_merge.merged_parts(parent.plan.id) == {"1", "2"}
    calls = stand.sub_plan_merge.history.calls(parent.plan.id)
    first, second = (MergeOutcome.of_call(call) for call in calls if part_of_merge(call) is not None)
    assert (first.plan_id, first.title, first.files) == (one.plan.id, "the one", 2)
    assert (second.base, second.tree) == (other.sandbox.base, parent.tree)
    told = [fact for fact in stand.told(EventType.PLAN_MERGED) if fact["child"] == other.plan.id]
    assert told == [{"child": other.plan.id, "key": "2", "files": 2, "conflicts": 0}]


def test_a_merge_is_made_once(stand: MergeStand, parent: Worker) -> None:
    child = stand.child(parent)
    child.writes({"new.txt": "new\n"})
    first = stand.merge(parent, child, "1")
    calls = stand.parts.history.calls(parent.plan.id)
    parent.writes({"new.txt": "changed since\n"}, "2")
    assert stand.merge(parent, child, "1") == first
    assert parent.text("new.txt") == "changed since\n"
    assert len(stand.parts.history.calls(parent.plan.id)) == len(calls) + 1


def test_a_child_starts_from_earlier_merges(stand: MergeStand, parent: Worker) -> None:
    first = stand.child(parent)
    first.writes({"new.txt": "by the first\n"})
    stand.merge(parent, first, "1")
    second = stand.child(parent)
    assert second.text("new.txt") == "by the first\n"
    assert second.sandbox.scan() == {}
    second.writes({"new.txt": "by the second\n"})
    assert not stand.merge(parent, second, "2").conflicts
    assert parent.text("new.txt") == "by the second\n"


def test_does_not_merge_rejected_changes_of_a_child(stand: MergeStand, parent: Worker) -> None:
    child = stand.child(parent)
    child.writes({"wanted.txt": "wanted\n", "unwanted.txt": "unwanted\n"})
    stand.parts.result.review(child.plan, ReviewKind.PATH, "unwanted.txt", accepted=False)
    assert stand.merge(parent, child, "1").files == 1
    assert parent.text("wanted.txt") == "wanted\n"
    assert not (parent.sandbox.root / "unwanted.txt").exists()


def test_a_hunk_left_out_of_an_earlier_version_stops_the_merge_of_a_child(
    stand: MergeStand, parent: Worker
) -> None:
    child = stand.child(parent)
    child.writes({"a.txt": with_line(2, "unwanted")})
    before = child.sandbox.base_states({"a.txt"}, child.sandbox.base)["a.txt"]

    def reviewed(*, accepted: bool) -> None:
        now = stand.parts.result.states(child.plan, child.sandbox, every_hunk=True)["a.txt"]
        assert before is not None
        assert now is not None
        hunk = HunkId("a.txt", before.content, now.content, 2, 1, 2, 1)
        verdict = Review(child.plan.id, ReviewKind.HUNK, hunk.subject, accepted)
        stand.parts.reviews.set(verdict, now=stand.container.clock.now())

    reviewed(accepted=False)
    child.writes({"a.txt": with_line(2, "unwanted, again")}, "2")
    with pytest.raises(NeedsHuman, match="accept or reject these hunks again"):
        stand.merge(parent, child, "1")
    assert parent.text("a.txt") == with_line(2, "line 2"), "nothing is merged"
    assert stand.sub_plan_merge.merged_parts(parent.plan.id) == frozenset()
    reviewed(accepted=True)
    stand.merge(parent, child, "1")
    assert parent.text("a.txt") == with_line(2, "unwanted, again")


def test_merges_by_git_attributes(stand: MergeStand, parent: Worker) -> None:
    """A change log with the union attribute is merged by union, as git does in the user's own repository."""
    one, other = stand.child(parent), stand.child(parent)
    one.writes({"CHANGES": "first\nby the one\n"})
    other.writes({"CHANGES": "first\nby the other\n"})
    assert merged(stand, parent, one, other) == {}
    assert parent.text("CHANGES") == "first\nby the one\nby the other\n"


def test_merges_a_file_that_another_child_ignores(stand: MergeStand, parent: Worker) -> None:
    """A scan does not see it, so only the merge itself can record it."""
    ruler, maker = stand.child(parent), stand.child(parent)
    ruler.writes({".gitignore": "*.tmp\n*.log\n"})
    maker.writes({"work.log": "worth keeping\n"})
    assert merged(stand, parent, ruler, maker) == {}
    assert parent.text("work.log") == "worth keeping\n"
    assert "work.log" in parent.sandbox.files_below(parent.tree)
    assert stand.child(parent).text("work.log") == "worth keeping\n"
    assert stand.found(parent.plan.id).text("work.log") == "worth keeping\n"


def test_merges_a_tracked_but_ignored_file(stand: MergeStand, parent: Worker) -> None:
    one, other = stand.child(parent), stand.child(parent)
    one.writes({"tracked.tmp": "by the one\n", "untracked.tmp": "nobody's\n"})
    other.writes({"tracked.tmp": "by the other\n"})
    assert merged(stand, parent, one, other).keys() == {"tracked.tmp"}
    assert stand.resolve(parent, "tracked.tmp", "theirs", "3.one").state is CallState.ENDED
    last = stand.child(parent)
    assert last.text("tracked.tmp") == "by the other\n"
    assert not (last.sandbox.root / "untracked.tmp").exists()
    last.writes({"tracked.tmp": None})
    stand.merge(parent, last, "4")
    assert not (parent.sandbox.root / "tracked.tmp").exists()
    assert "tracked.tmp" not in parent.sandbox.files_below(parent.tree)
    ensure_recorded(stand, parent)


def test_a_text_conflict_has_both_sides_in_file_and_records(stand: MergeStand, parent: Worker) -> None:
    conflict = disagreeing(stand, parent)
    child = conflict.plan_id
    marked = [f"<<<<<<< plan {parent.plan.id}", "ours", "=======", "theirs", f">>>>>>> sub-plan {child}"]
    wanted = "\n".join(["top", *LINES[1:4], *marked, *LINES[5:19], "bottom", ""])
    assert parent.text("a.txt") == wanted
    assert (conflict.path, conflict.kind, conflict.marked) == ("a.txt", "content", True)
    assert conflict.ours is not None
    assert conflict.theirs is not None
    assert parent.sandbox.content(conflict.ours.content).decode() == with_line(5, "ours", (1, "top"))
    assert parent.sandbox.content(conflict.theirs.content).decode() == with_line(5, "theirs", (20, "bottom"))
    assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == (conflict,)
    told = [fact for fact in stand.told(EventType.CONFLICT_KEPT) if fact["child"] == child]
    assert told == [{"child": child, "key": "2", "path": "a.txt", "kind": "content"}]


def test_an_unmarkable_conflict_leaves_ours_and_records_both(stand: MergeStand, parent: Worker) -> None:
    one, other = stand.child(parent), stand.child(parent)

    def ours(root: Path) -> None:
        (root / "gone.txt").unlink()
        (root / "kept.txt").write_text("changed\n")
        (root / "pixel.bin").write_bytes(b"\0ours")
        (root / "place").write_text("still a file\n")
        (root / "tree/leaf").write_text("another leaf\n")
        (root / "name").rename(root / "our-name")
        (root / "old").rename(root / "new")
        (root / "script").write_text("same\n")
        (root / "script").chmod(0o755)
        (root / "kind").symlink_to("a.txt")

    def theirs(root: Path) -> None:
        (root / "gone.txt").write_text("changed\n")
        (root / "kept.txt").unlink()
        (root / "pixel.bin").write_bytes(b"\0theirs")
        (root / "place").unlink()
        (root / "place").mkdir()
        (root / "place/inside").write_text("inside\n")
        (root / "tree/leaf").unlink()
        (root / "tree").rmdir()
        (root / "tree").write_text("a file now\n")
        (root / "name").rename(root / "their-name")
        (root / "old/three").write_text("three\n")
        (root / "script").write_text("same\n")
        (root / "kind").write_text("no link\n")

    one.does(ours)
    other.does(theirs)
    found = merged(stand, parent, one, other)
    modes = {
        path: tuple(None if state is None else state.mode for state in (kept.ours, kept.theirs, kept.left))
        for path, kept in found.items()
    }
    assert modes == {
        "gone.txt": (None, REGULAR, None),
        "kept.txt": (REGULAR, None, REGULAR),
        "kind": (SYMLINK, REGULAR, SYMLINK),
        "name": (None, None, None),
        "new/three": (REGULAR, REGULAR, REGULAR),
        "our-name": (REGULAR, None, REGULAR),
        "pixel.bin": (REGULAR, REGULAR, REGULAR),
        "place": (REGULAR, DIRECTORY, REGULAR),
        "script": (EXECUTABLE, REGULAR, EXECUTABLE),
        "their-name": (None, REGULAR, None),
        "tree": (DIRECTORY, REGULAR, DIRECTORY),
        "tree/leaf": (REGULAR, None, REGULAR),
    }
    assert not any(kept.marked for kept in found.values())
    assert found["new/three"].theirs_path == "old/three"
    assert "name" not in {kept.path for kept in stand.sub_plan_merge.open_conflicts(parent.plan.id)}
    assert (parent.sandbox.root / "pixel.bin").read_bytes() == b"\0ours"
    assert parent.text("place") == "still a file\n"
    assert parent.text("tree/leaf") == "another leaf\n"
    assert not (parent.sandbox.root / "their-name").exists()


@pytest.mark.parametrize("take", ["ours", "theirs"])
def test_takes_a_side_only_in_marked_places(stand: MergeStand, parent: Worker, take: str) -> None:
    """Changes of the other side elsewhere in the file stay, and so do later changes."""
    conflict = disagreeing(stand, parent)
    later = parent.text("a.txt").replace("line 12", "changed since the merge")
    parent.writes({"a.txt": later}, "3")
    call = stand.resolve(parent, "a.txt", take, "4.one")
    assert call.state is CallState.ENDED, call.error
    assert parent.text("a.txt") == with_line(
        5, take, (1, "top"), (12, "changed since the merge"), (20, "bottom")
    )
    assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == ()
    ensure_recorded(stand, parent)
    told = [fact for fact in stand.told(EventType.CONFLICT_RESOLVED) if fact["number"] == call.number]
    assert {"number": call.number, "merge": conflict.merge, "path": "a.txt", "take": take} in told


def test_an_edit_without_markers_resolves_a_conflict(stand: MergeStand, parent: Worker) -> None:
    disagreeing(stand, parent)
    refused = stand.resolve(parent, "a.txt", "edited", "3.one")
    assert refused.state is CallState.FAILED
    assert "still contains the conflict marker" in str(refused.error)
    half = parent.text("a.txt").replace("<<<<<<< plan", "======= plan")
    parent.writes({"a.txt": half}, "4")
    assert stand.resolve(parent, "a.txt", "edited", "4.one").state is CallState.FAILED
    lines = parent.text("a.txt").splitlines(keepends=True)
    divided = [line for line in lines if not line.startswith((">>>>>>>", "======= plan"))]
    parent.writes({"a.txt": "".join(divided)}, "4.more")
    assert "still contains the conflict marker '======='" in str(
        stand.resolve(parent, "a.txt", "edited", "4.two").error
    )
    assert len(stand.sub_plan_merge.open_conflicts(parent.plan.id)) == 1
    parent.writes({"a.txt": with_line(5, "both")}, "5")
    assert stand.resolve(parent, "a.txt", "edited", "5.one").state is CallState.ENDED
    assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == ()
    assert parent.text("a.txt") == with_line(5, "both")


def test_refuses_to_resolve_without_a_conflict(stand: MergeStand, parent: Worker) -> None:
    disagreeing(stand, parent)
    refused = stand.resolve(parent, "gone.txt", "ours", "3.one")
    assert refused.error == "resolve: no open conflict at gone.txt; open conflicts: a.txt"


@pytest.mark.parametrize("take", ["ours", "theirs"])
def test_either_side_of_a_file_and_a_directory_can_be_taken(
    stand: MergeStand, parent: Worker, take: str
) -> None:
    one, other = stand.child(parent), stand.child(parent)
    one.writes({"place": "still a file\n"})
    other.writes({"place": None})
    other.writes({"place/inside": "inside\n", "place/deep/er": "deeper\n"}, "2")
    merged(stand, parent, one, other)
    assert stand.resolve(parent, "place", take, "3.one").state is CallState.ENDED
    if take == "ours":
        assert parent.text("place") == "still a file\n"
    else:
        assert parent.text("place/inside") == "inside\n"
        assert parent.text("place/deep/er") == "deeper\n"
    ensure_recorded(stand, parent)
    assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == ()


def test_a_file_of_a_renamed_directory_can_return(stand: MergeStand, parent: Worker) -> None:
    one, other = stand.child(parent), stand.child(parent)
    one.does(lambda root: (root / "old").rename(root / "new") and None)
    other.writes({"old/three": "three\n"})
    merged(stand, parent, one, other)
    assert parent.text("new/three") == "three\n"
    assert stand.resolve(parent, "new/three", "theirs", "3.one").state is CallState.ENDED
    assert parent.text("old/three") == "three\n"
    assert not (parent.sandbox.root / "new/three").exists()
    ensure_recorded(stand, parent)


def test_refuses_a_side_over_later_changes(stand: MergeStand, parent: Worker) -> None:
    one, other = stand.child(parent), stand.child(parent)
    one.writes({"pixel.bin": b"\0ours"})
    other.writes({"pixel.bin": b"\0theirs"})
    merged(stand, parent, one, other)
    parent.writes({"pixel.bin": b"\0since"}, "3")
    refused = stand.resolve(parent, "pixel.bin", "theirs", "4.one")
    assert "was changed after the merge" in str(refused.error)
    assert (parent.sandbox.root / "pixel.bin").read_bytes() == b"\0since"
    assert stand.resolve(parent, "pixel.bin", "edited", "4.two").state is CallState.ENDED


def test_text_changed_in_a_marked_place_needs_edited(stand: MergeStand, parent: Worker) -> None:
    disagreeing(stand, parent)
    parent.writes({"a.txt": parent.text("a.txt").replace("\nours\n", "\nmine\n")}, "3")
    assert "was changed after the merge" in str(stand.resolve(parent, "a.txt", "ours", "3.one").error)
    parent.writes({"a.txt": None}, "4")
    assert "was changed after the merge" in str(stand.resolve(parent, "a.txt", "ours", "4.one").error)


def test_conflicts_of_two_merges_at_one_path_end_together(stand: MergeStand, parent: Worker) -> None:
    children = [stand.child(parent, str(number)) for number in range(3)]
    for number, child in enumerate(children):
        child.writes({"a.txt": with_line(5, f"by {number}")})
    merged(stand, parent, *children)
    assert len(stand.sub_plan_merge.open_conflicts(parent.plan.id)) == 2
    assert stand.resolve(parent, "a.txt", "ours", "4.one").state is CallState.ENDED
    assert parent.text("a.txt") == with_line(5, "by 0")
    assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == ()


def test_edits_end_no_conflict_at_the_path_that_had_no_markers(stand: MergeStand, parent: Worker) -> None:
    one, deleting, other = (stand.child(parent) for _ in range(3))
    one.writes({"a.txt": with_line(5, "ours")})
    deleting.writes({"a.txt": None})
    other.writes({"a.txt": with_line(5, "theirs")})
    merged(stand, parent, one, deleting, other)
    deleted, marked = stand.sub_plan_merge.open_conflicts(parent.plan.id)
    assert (deleted.marked, marked.marked) == (False, True)
    parent.writes({"a.txt": with_line(5, "both")}, "4")
    settle_edited(parent.execution, marked.merge, "resolve-3")
    assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == (deleted,)


def test_a_rollback_reopens_a_conflict(stand: MergeStand, parent: Worker) -> None:
    conflict = disagreeing(stand, parent)
    resolved = stand.resolve(parent, "a.txt", "theirs", "3.one")
    rested = at_rest(stand, parent)
    stand.parts.sandbox_edits.rollback(stand.parts.plans.get(parent.plan.id), resolved.number)
    assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == (conflict,)
    assert "<<<<<<< plan" in rested.text("a.txt")
    stand.parts.sandbox_edits.rollback(stand.parts.plans.get(parent.plan.id), conflict.merge)
    assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == ()
    assert stand.sub_plan_merge.merged_parts(parent.plan.id) == {"1"}
    assert rested.text("a.txt") == with_line(5, "ours", (1, "top"))
    other = stand.found(conflict.plan_id)
    (again,) = stand.merge(rested, other, "2").conflicts
    assert (again.ours, again.theirs) == (conflict.ours, conflict.theirs)


def test_refuses_to_merge_a_child_without_a_sandbox(stand: MergeStand, parent: Worker) -> None:
    child = stand.child(parent)
    child.writes({"new.txt": "new\n"})
    stand.parts.sandboxes.remove(child.plan.id)
    with pytest.raises(SandboxMissing):
        stand.merge(parent, child, "1")
    assert stand.sub_plan_merge.merged_parts(parent.plan.id) == frozenset()
    assert not (stand.found(parent.plan.id).sandbox.root / "new.txt").exists()


def test_a_cancelled_parent_merges_nothing(stand: MergeStand, parent: Worker) -> None:
    child = stand.child(parent)
    child.writes({"new.txt": "new\n"})
    stop = parent.execution.stop
    assert isinstance(stop, CancellationToken)
    stop.cancel("not wanted")
    with pytest.raises(Cancelled):
        stand.merge(parent, child, "1")
    assert stand.parts.history.calls(parent.plan.id) == []


def test_a_person_resolves_between_runs_and_edits_are_recorded(stand: MergeStand, parent: Worker) -> None:
    disagreeing(stand, parent)
    by_hand = stand.container.plan_parts.manual_resolution
    with pytest.raises(PlanError, match="still running"):
        by_hand.resolve(parent.plan, "a.txt", Take.OURS)
    rested = at_rest(stand, parent)
    with pytest.raises(StalePlan):
        by_hand.resolve(parent.plan, "a.txt", Take.OURS)
    with pytest.raises(ToolRefused, match="still contains the conflict marker"):
        by_hand.resolve(rested.plan, "a.txt", Take.EDITED)
    (rested.sandbox.root / "a.txt").write_text(with_line(5, "by hand"))
    (rested.sandbox.root / "note.txt").write_text("by hand\n")
    with pytest.raises(ToolRefused, match="was changed after the merge"):
        by_hand.resolve(rested.plan, "a.txt", Take.THEIRS)
    call = by_hand.resolve(rested.plan, "a.txt", Take.EDITED)
    assert (call.state, call.step) == (CallState.ENDED, None)
    assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == ()
    ensure_recorded(stand, rested)
    assert rested.sandbox.files_below(rested.tree).keys() >= {"a.txt", "note.txt"}


def test_a_person_takes_a_side(stand: MergeStand, parent: Worker) -> None:
    disagreeing(stand, parent)
    rested = at_rest(stand, parent)
    stand.container.plan_parts.manual_resolution.resolve(rested.plan, "a.txt", Take.THEIRS)
    assert rested.text("a.txt") == with_line(5, "theirs", (1, "top"), (20, "bottom"))
    ensure_recorded(stand, rested)
    now = stand.container.clock.now()
    ended = stand.parts.plans.move(rested.plan, (Phase.ACTION, PlanState.CANCELLED), now=now)
    with pytest.raises(PlanError, match="already cancelled"):
        stand.container.plan_parts.manual_resolution.resolve(ended, "a.txt", Take.OURS)


def test_describes_both_sides_in_bounded_length(stand: MergeStand, parent: Worker) -> None:
    one, other = stand.child(parent, "the one"), stand.child(parent, "the other")
    one.writes({"kept.txt": "changed\n" + "x" * 5_000, "pixel.bin": b"\0ours", "a.txt": with_line(5, "ours")})
    other.writes({"kept.txt": None, "pixel.bin": b"\0theirs", "a.txt": with_line(5, "theirs")})
    merged(stand, parent, one, other)
    conflicts = stand.sub_plan_merge.open_conflicts(parent.plan.id)
    words = conflict_task(conflicts, parent.sandbox.content)
    assert "the other" in words
    assert (
        f"## a.txt (content)\nBoth sides are marked in the file:\n  | <<<<<<< plan {parent.plan.id}" in words
    )
    assert "  | ours\n  | =======\n  | theirs\n  | >>>>>>> sub-plan" in words
    assert "line 4" not in words
    assert "ours: a file; this is in the file now\n  | changed" in words
    assert "theirs: no file" in words
    assert "(7 bytes of binary data)" in words
    assert "(truncated)" in words
    many = conflict_task(conflicts * 40, parent.sandbox.content)
    assert len(many) < 25_000
    assert "And, not described here: " in many


def test_refuses_a_side_whose_path_is_taken(stand: MergeStand, parent: Worker) -> None:
    one, other = stand.child(parent), stand.child(parent)

    def ours(root: Path) -> None:
        (root / "old").rename(root / "new")
        (root / "place").write_text("still a file\n")
        (root / "name").write_text("\n".join(["by us", *LINES[1:], "a name", ""]))

    def theirs(root: Path) -> None:
        (root / "old/three").write_text("three\n")
        (root / "place").unlink()
        (root / "place").mkdir()
        (root / "name").rename(root / "place/name")
        (root / "place/name").write_text("\n".join(["by them", *LINES[1:], "a name", ""]))

    one.does(ours)
    other.does(theirs)
    found = merged(stand, parent, one, other)
    assert found.keys() == {"new/three", "place", "place/name"}
    refused = stand.resolve(parent, "place/name", "theirs", "3.one")
    assert "cannot be created while place is a file" in str(refused.error)
    parent.writes({"old/three": "something else\n"}, "4")
    refused = stand.resolve(parent, "new/three", "theirs", "4.one")
    assert "already exists with other content" in str(refused.error)
    assert stand.resolve(parent, "place", "theirs", "4.two").state is CallState.ENDED
    assert "<<<<<<< plan" in parent.text("place/name")
    assert stand.resolve(parent, "place/name", "edited", "4.three").state is CallState.FAILED
    assert stand.resolve(parent, "place/name", "ours", "4.four").state is CallState.ENDED
    assert parent.text("place/name").startswith("by us\nline 2\n")
    assert {one.path for one in stand.sub_plan_merge.open_conflicts(parent.plan.id)} == {"new/three"}
    ensure_recorded(stand, parent)


def test_a_deleted_file_resolves_a_conflict(stand: MergeStand, parent: Worker) -> None:
    disagreeing(stand, parent)
    parent.writes({"a.txt": None}, "3")
    assert stand.resolve(parent, "a.txt", "edited", "3.one").state is CallState.ENDED
    assert "a.txt" not in parent.sandbox.files_below(parent.tree)


def cut_off(by_hand: ManualResolution, rested: Worker, point: str) -> None:
    """A person takes theirs, and the process ends at this point."""

    def execution(plan: Plan, sandbox: Sandbox) -> ToolExecution:
        return replace(by_hand.execution(plan, sandbox), faults=RaiseAt(point, KeyboardInterrupt))

    with pytest.raises(KeyboardInterrupt):
        replace(by_hand, execution=execution).resolve(rested.plan, "a.txt", Take.THEIRS)


def test_the_next_run_ends_an_interrupted_resolution(stand: MergeStand, parent: Worker) -> None:
    """An open call would hide later edits."""
    conflict = disagreeing(stand, parent)
    rested = at_rest(stand, parent)
    cut_off(stand.container.plan_parts.manual_resolution, rested, "resolve.files.after")
    rested.execution.settle()
    *_, last = stand.parts.history.calls(parent.plan.id)
    assert (last.tool, last.state) == ("resolve", CallState.FAILED)
    assert stand.sub_plan_merge.open_conflicts(parent.plan.id) == (conflict,)
    assert "<<<<<<< plan" in rested.text("a.txt")


@pytest.mark.parametrize("point", ["resolve.files.after", "resolve.ending.after"])
def test_the_next_resolution_settles_an_interrupted_one(
    stand: MergeStand, parent: Worker, point: str
) -> None:
    disagreeing(stand, parent)
    rested = at_rest(stand, parent)
    by_hand = stand.container.plan_parts.manual_resolution
    cut_off(by_hand, rested, point)
    if point == "resolve.ending.after":
        with pytest.raises(ToolRefused, match="no open conflict"):
            by_hand.resolve(rested.plan, "a.txt", Take.OURS)
        wanted, states = "theirs", [CallState.ENDED]
    else:
        by_hand.resolve(rested.plan, "a.txt", Take.OURS)
        wanted, states = "ours", [CallState.FAILED, CallState.ENDED]
    assert rested.text("a.txt") == with_line(5, wanted, (1, "top"), (20, "bottom"))
    assert [call.state for call in stand.parts.history.calls(parent.plan.id) if call.step is None] == states
    ensure_recorded(stand, rested)


def test_finds_the_resolve_tool_by_name(stand: MergeStand, parent: Worker) -> None:
    tools = ConflictTools(ConflictEnvironment(stand.parts.history, parent.sandbox))
    assert tools.names() == ("resolve",)
    assert [spec.name for spec in tools.specs()] == ["resolve"]
    assert tools.problems() == ()
    with pytest.raises(UnknownTool):
        tools.get("merge")


def test_resolves_a_path_that_is_not_unicode(stand: MergeStand, parent: Worker) -> None:
    odd = os.fsdecode(b"caf\xe9")
    one, other = stand.child(parent), stand.child(parent)
    one.writes({odd: "ours\n"})
    other.writes({odd: "theirs\n"})
    (conflict,) = merged(stand, parent, one, other).values()
    assert (conflict.path, conflict.shown_path) == (odd, '"caf\\351"')
    assert stand.resolve(parent, '"caf\\351"', "theirs", "3.one").state is CallState.ENDED
    assert parent.text(odd) == "theirs\n"
    (told,) = [fact for fact in stand.told(EventType.CONFLICT_KEPT) if fact["child"] == other.plan.id]
    assert told["path"] == '"caf\\351"'


def test_resolves_a_path_with_control_characters(stand: MergeStand, parent: Worker) -> None:
    names = ("new\nline", "\x1b[31mred", 'say "hi"')
    one, other = stand.child(parent), stand.child(parent)
    one.writes(dict.fromkeys(names, "ours\n"))
    other.writes(dict.fromkeys(names, "theirs\n"))
    kept = merged(stand, parent, one, other)
    assert [kept[name].shown_path for name in names] == ['"new\\nline"', '"\\033[31mred"', '"say \\"hi\\""']
    assert stand.resolve(parent, '"new\\nline"', "theirs", "3.one").state is CallState.ENDED
    assert stand.resolve(parent, "\x1b[31mred", "theirs", "3.two").state is CallState.ENDED
    refused = stand.resolve(parent, "new\nline", "ours", "3.three")
    assert refused.error == 'resolve: no open conflict at "new\\nline"; open conflicts: "say \\"hi\\""'
    task = conflict_task(list(kept.values()), parent.sandbox.content)
    assert "\x1b" not in task
    assert '## "new\\nline" (add/add)' in task


def test_reads_a_merge_without_a_recorded_tree(stand: MergeStand, parent: Worker) -> None:
    conflict = disagreeing(stand, parent)
    call = next(call for call in stand.parts.history.calls(parent.plan.id) if call.number == conflict.merge)
    assert isinstance(call.result, Mapping)
    older = {name: told for name, told in call.result.items() if name != "theirs"}
    outcome = MergeOutcome.of_call(changed(call, result=freeze(older)))
    assert (outcome.conflicts, outcome.tree) == ((conflict,), call.result["tree"])
    assert not parent.sandbox.keeps(outcome.theirs)
    # An unreadable record says so, with a remedy.
    damaged = [{"conflicts": [{}]}, {"conflicts": 1}, {"conflicts": None}, {"files": "many"}]
    for kept in (None, [], {}, *({**call.result, **damage} for damage in damaged)):
        with pytest.raises(PlanError, match=rf"merge call {call.number} is unreadable") as told:
            MergeOutcome.of_call(changed(call, result=freeze(kept)))
        assert [one.action for one in told.value.remedies] == ["plan.rollback"]
