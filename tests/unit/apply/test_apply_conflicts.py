"""Plans that conflict with the current files: refused with both sides, and nothing is touched.

Tests that name a report show that the reported damage cannot happen here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from cleveragents.apply.merge import conflict_hunks
from cleveragents.apply.ports import CommitRequest, FileConflict, Rename
from cleveragents.core.errors import ApplyConflict, ApplyRefused
from cleveragents.core.text.redaction import KnownSecrets
from tests.apply_bench import Edit, Link, World, world_at
from tests.races.naive_apply import AppliesPatch, ChecksOut, WritesFilesOneByOne

Build = Callable[..., World]

LINES = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n"


def changed(line: int, to: bytes, lines: bytes = LINES) -> bytes:
    parts = lines.split(b"\n")
    parts[line - 1] = to
    return b"\n".join(parts)


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """Return a function that creates a world with these files."""
    with ExitStack() as opened:

        def make(files: Mapping[str, Edit], *, repository: bool = True) -> World:
            return opened.enter_context(world_at(tmp_path / "home", files, repository=repository))

        yield make


def refused(world: World, plan: str = "p") -> list[FileConflict]:
    """Return the conflicts, after checking that nothing was touched."""
    before = world.files()
    with world.prepare(plan) as preparation:
        found = list(preparation.conflicts)
        with pytest.raises(ApplyConflict) as caught:
            preparation.apply()
    assert set(caught.value.paths) == {conflict.path for conflict in found}
    assert world.files() == before
    return found


def test_two_plans_that_change_different_places_of_a_file_both_apply(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("first", {"a": changed(1, b"one")})
    world.plan("second", {"a": changed(9, b"nine")})
    world.apply("first")
    world.apply("second")
    assert (world.resource / "a").read_bytes() == changed(9, b"nine", changed(1, b"one"))


def test_refuses_the_second_of_two_plans_that_change_the_same_line(build: Build) -> None:
    """griffinwork40/agent-afk#2028: an edit made from a stale copy silently reverted an earlier one."""
    world = build({"a": LINES})
    world.plan("first", {"a": changed(5, b"five")})
    world.plan("second", {"a": changed(5, b"FIVE")})
    world.apply("first")
    (conflict,) = refused(world, "second")
    assert (conflict.path, conflict.kind, conflict.cause) == ("a", "content", "plan first")
    assert conflict.hunks == ("line 5, current:\n  | five\nproposed:\n  | FIVE",)
    assert (world.resource / "a").read_bytes() == changed(5, b"five")


def test_a_conflict_with_the_users_edit_names_the_user(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": changed(5, b"five")})
    world.write({"a": changed(5, b"mine", changed(1, b"also mine"))})
    (conflict,) = refused(world)
    assert conflict.cause == "you"
    assert conflict.hunks == ("line 5, current:\n  | mine\nproposed:\n  | five",)
    with world.prepare("p") as preparation, pytest.raises(ApplyConflict) as caught:
        preparation.apply()
    assert (
        "a: both sides changed the same lines; the other change is by you\nline 5, current:\n  | mine"
        in caught.value.details
    )


def test_an_edit_after_an_apply_is_attributed_to_the_user(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("first", {"a": changed(5, b"five")})
    world.plan("second", {"a": changed(5, b"FIVE")})
    world.apply("first")
    world.write({"a": changed(5, b"five and more")})
    (conflict,) = refused(world, "second")
    assert conflict.cause == "you"


def test_uncommitted_edits_elsewhere_in_the_file_are_kept(build: Build) -> None:
    """BloopAI/vibe-kanban#543, #279: a merge destroyed the user's uncommitted changes."""
    world = build({"a": LINES, "b": b"x\n"})
    world.plan("p", {"a": changed(1, b"one"), "b": None})
    world.write({"a": changed(9, b"mine"), "new": b"untracked\n"})
    world.apply("p")
    assert (world.resource / "a").read_bytes() == changed(9, b"mine", changed(1, b"one"))
    assert (world.resource / "new").read_bytes() == b"untracked\n"


def test_commits_and_branch_of_the_user_stay_when_a_plan_is_undone(build: Build) -> None:
    """cline/cline#13550: a restore did `reset --hard` on the user's branch and dropped commits.
    RooCodeInc/Roo-Code#6209: a restore deleted most of a code base."""
    world = build({"a": LINES, **{f"src/{n}": b"%d\n" % n for n in range(20)}})
    world.plan("p", {"a": changed(1, b"one"), "added": b"new\n"})
    world.apply("p")
    world.write({"mine": b"mine\n", "src/3": b"edited\n"})
    world.git("add", "-A")
    world.git("commit", "-q", "-m", "mine, with the plan's")
    head, before = world.git("rev-parse", "HEAD"), world.files()
    world.undo("p")
    del before["added"]
    assert world.files() == before | {"a": ("file 644", LINES)}
    assert world.git("rev-parse", "HEAD") == head


def test_a_patch_is_never_applied_to_another_place(build: Build) -> None:
    """holon-run/holon#2741: a patch landed in the wrong place."""
    block = b"def check():\n    return False\n\n"
    world = build({"a": block * 3})
    third = block * 2 + block.replace(b"False", b"True")
    world.plan("p", {"a": third})
    world.write({"a": b"# moved down\n" * 4 + block * 3})
    world.apply("p")
    assert (world.resource / "a").read_bytes() == b"# moved down\n" * 4 + third
    world.undo("p")
    world.write({"a": block * 2})
    assert refused(world)[0].path == "a"


def test_a_branch_checked_out_elsewhere_does_not_block(build: Build, tmp_path: Path) -> None:
    """BloopAI/vibe-kanban#1897: a merge failed silently when the target was checked out elsewhere."""
    world = build({"a": LINES})
    world.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    world.plan("p", {"a": changed(1, b"one")})
    assert world.apply("p").changes.keys() == {"a"}
    assert (world.resource / "a").read_bytes() == changed(1, b"one")
    assert (tmp_path / "side" / "a").read_bytes() == LINES


def test_an_apply_touches_neither_commits_nor_stash(build: Build) -> None:
    """mattpocock/skills#429: an amend hit another's commit, and a stash vanished."""
    world = build({"a": LINES, "b": b"x\n"})
    world.write({"b": b"stashed\n"})
    world.git("stash", "-q")
    world.git("branch", "other")
    refs = world.git("for-each-ref")
    config = (world.resource / ".git/config").read_bytes()
    world.plan("p", {"a": changed(1, b"one")})
    pinned = set(world.git("for-each-ref").splitlines()) - set(refs.splitlines())
    world.apply("p")
    world.undo("p")
    assert set(world.git("for-each-ref").splitlines()) - pinned == set(refs.splitlines())
    assert (world.resource / ".git/config").read_bytes() == config
    assert world.git("stash", "list").count("\n") == 0
    assert "stash@{0}" in world.git("stash", "list")


def test_follows_a_rename_by_the_user(build: Build) -> None:
    world = build({"a": LINES * 5})
    world.plan("p", {"a": changed(1, b"one", LINES * 5)})
    world.write({"a": None, "renamed/b": LINES * 5, "new": b"untracked\n"})
    world.git("add", "-N", "renamed/b")
    applied = world.apply("p")
    assert applied.changes.keys() == {"renamed/b"}
    assert applied.renames == (Rename("a", "renamed/b"),)
    assert (world.resource / "renamed/b").read_bytes() == changed(1, b"one", LINES * 5)
    assert (world.resource / "new").read_bytes() == b"untracked\n"
    before = world.applier.last_of_plan("p")
    world.undo("p")
    undone = world.applier.last_of_plan("p")
    assert before is not None
    assert undone is not None
    assert (before.kind, before.files, before.renames) == ("apply", 1, applied.renames)
    assert (undone.kind, undone.files, undone.renames) == ("undo", 1, ())


PLAN: dict[str, Edit] = {"a": changed(1, b"one", LINES * 5)}
ALIKE = changed(45, b"mine", LINES * 5)


@pytest.mark.parametrize(
    ("edits", "mine", "kinds", "repository"),
    [
        (PLAN, {"b": LINES * 5}, {"a": "modify/delete"}, True),
        (PLAN, {"b": ALIKE}, {"a": "modify/delete"}, False),
        (PLAN, {"b": ALIKE, "d/c": ALIKE}, {"a": "modify/delete"}, True),
        ({**PLAN, "b": ALIKE + b"plan\n"}, {"b": ALIKE}, {"a": "modify/delete"}, True),
        (
            {"a": None, "b": changed(1, b"one", LINES * 5)},
            {"b": ALIKE},
            {"a": "rename/delete", "b": "rename/delete"},
            True,
        ),
        ({"z": None, "b/c": b"plan\n"}, {"b": ALIKE}, {"b": "file/directory"}, True),
        ({"z": None, "b": b"plan\n"}, {"b/c": ALIKE}, {"b": "file/directory"}, True),
    ],
)
def test_an_untracked_file_that_resembles_a_deleted_one_stays_unchanged(
    build: Build,
    edits: Mapping[str, Edit],
    mine: Mapping[str, Edit],
    kinds: dict[str, str],
    repository: bool,
) -> None:
    world = build({"a": LINES * 5, "z": b"z\n"}, repository=repository)
    world.plan("p", edits)
    world.write({"a": None, **mine})
    found = refused(world)
    assert {conflict.path: conflict.kind for conflict in found} == kinds
    hinted = [conflict for conflict in found if "if you renamed it" in str(conflict)]
    assert [one.path for one in hinted] == [path for path, kind in kinds.items() if kind.endswith("delete")]
    assert all(("git add" in str(conflict)) is repository for conflict in hinted)


def test_an_untracked_file_identical_to_the_plans_is_no_conflict(build: Build) -> None:
    world = build({"a": LINES * 5, "z": b"z\n"})
    world.plan("p", {"b": ALIKE, "z": b"plan\n"})
    world.write({"a": None, "b": ALIKE, "c": ALIKE})
    before = world.files()
    assert world.apply("p").changes.keys() == {"z"}
    assert world.files() == before | {"z": ("file 644", b"plan\n")}
    world.undo("p")
    assert world.files() == before


def test_a_conflict_in_a_renamed_file_shows_both_names(build: Build) -> None:
    world = build({"a": LINES * 5})
    world.plan("p", PLAN)
    world.write({"a": None, "b": changed(1, b"mine", LINES * 5)})
    world.git("add", "b")
    (conflict,) = refused(world)
    assert (conflict.path, conflict.hunks[0]) == ("b", "renamed from a")


def test_a_directory_rename_does_not_move_a_new_file(build: Build) -> None:
    """holon-run/holon#2741 again: a renamed directory is no reason to move a file."""
    world = build({"old/a": LINES, "old/b": LINES * 2})
    world.plan("p", {"old/new": b"x\n"})
    world.write({"old/a": None, "old/b": None, "moved/a": LINES, "moved/b": LINES * 2})
    assert world.apply("p").changes.keys() == {"old/new"}


KINDS: dict[str, tuple[Mapping[str, Edit], Mapping[str, Edit], Mapping[str, Edit], dict[str, str]]] = {
    "deleted here, edited there": (
        {"a": LINES, "z": b""},
        {"a": changed(1, b"one")},
        {"a": None},
        {"a": "modify/delete"},
    ),
    "edited here, deleted there": (
        {"a": LINES, "z": b""},
        {"a": None},
        {"a": changed(1, b"one")},
        {"a": "modify/delete"},
    ),
    "made on both sides": ({"z": b""}, {"a": b"plan\n"}, {"a": b"mine\n"}, {"a": "add/add"}),
    "binary": ({"a": b"\0a"}, {"a": b"\0b"}, {"a": b"\0c"}, {"a": "binary"}),
    "a link and a file": ({"z": b""}, {"a": Link("z")}, {"a": b"mine\n"}, {"a": "distinct types"}),
    "a directory in a file's place": (
        {"z": b""},
        {"a": b"plan\n"},
        {"a/b": b"mine\n"},
        {"a": "file/directory"},
    ),
    "a file in a directory's place": (
        {"z": b""},
        {"a/b": b"plan\n"},
        {"a": b"mine\n"},
        {"a": "file/directory"},
    ),
    "renamed to two places, one of them untracked": (
        {"a": LINES},
        {"a": None, "b": LINES},
        {"a": None, "c": LINES},
        {"a": "rename/delete", "b": "rename/delete"},
    ),
}


@pytest.mark.parametrize("case", KINDS)
def test_every_kind_of_conflict_is_named_and_changes_nothing(build: Build, case: str) -> None:
    files, edits, mine, kinds = KINDS[case]
    world = build(files)
    world.plan("p", edits)
    world.write(mine)
    assert {conflict.path: conflict.kind for conflict in refused(world)} == kinds


def test_an_ignored_file_in_the_way_is_never_overwritten(build: Build) -> None:
    world = build({".gitignore": b"out\nsame\n", "a": b"x\n"})
    world.plan("p", {"out": b"plan\n", "same": b"equal\n"})
    world.write({"out": b"precious\n", "same": b"equal\n"})
    (conflict,) = refused(world)
    assert (conflict.path, conflict.kind, conflict.cause) == ("out", "add/add", "you")
    assert conflict.hunks == ("the content is not shown, because git ignores the file",)


def test_a_rename_does_not_show_the_content_of_an_ignored_file(build: Build) -> None:
    world = build({".env": LINES, "a": b"x\n"})
    world.plan("p", {".env": None, "shown": changed(1, b"one")})
    world.git("rm", "-q", "--cached", ".env")
    world.write({".gitignore": b".env\n", ".env": changed(1, b"precious")})
    found = refused(world)
    assert found
    assert "precious" not in "\n".join(map(str, found))


@pytest.mark.parametrize(
    ("mine", "said"),
    [
        ({"build": b"a file\n"}, "build is a file"),
        ({"build": Link("/tmp")}, "build is a symbolic link"),
        ({"build/out/deep": b"x"}, "build/out is a directory that contains build/out/deep"),
    ],
)
def test_obstacles_unknown_to_git_are_neither_overwritten_nor_followed(
    build: Build, mine: Mapping[str, Edit], said: str
) -> None:
    world = build({".gitignore": b"build\n", "a": b"x\n"})
    world.plan("p", {"build/out": b"plan\n"})
    world.write(mine)
    (conflict,) = refused(world)
    assert (conflict.path, conflict.kind, conflict.hunks) == ("build/out", "in the way", (said,))


def test_merges_an_ignored_file_of_the_base(build: Build) -> None:
    world = build({".gitignore": b".env\n", "a": b"x\n"})
    world.write({".env": LINES})
    world.git("add", "-f", ".env")
    world.plan("p", {".env": changed(1, b"one")})
    world.git("rm", "-q", "--cached", ".env")
    world.write({".env": changed(9, b"mine")})
    world.apply("p")
    assert (world.resource / ".env").read_bytes() == changed(9, b"mine", changed(1, b"one"))


@pytest.mark.parametrize(
    ("mark", "first", "commit"),
    [
        ("assume-unchanged", "the edit", None),
        ("assume-unchanged", "the plan", CommitRequest("a commit")),
        ("skip-worktree", "the edit", CommitRequest("a commit")),
        ("skip-worktree", "the plan", None),
    ],
)
def test_merges_an_edit_that_the_index_hides(
    build: Build, mark: str, first: str, commit: CommitRequest | None
) -> None:
    world = build({"a": LINES, "b": b"x\n"})
    edits: dict[str, Edit] = {"a": changed(9, b"mine")}
    if first == "the edit":
        world.git("update-index", f"--{mark}", "a")
        world.write(edits)
    world.plan("p", {"a": changed(1, b"one", edits["a"] if first == "the edit" else LINES)})
    if first == "the plan":
        world.git("update-index", f"--{mark}", "a")
        world.write(edits)
    before, marked = world.files(), world.git("ls-files", "-v")
    world.apply("p", commit)
    assert (world.resource / "a").read_bytes() == changed(9, b"mine", changed(1, b"one"))
    assert world.git("ls-files", "-v") == marked
    if commit is not None:
        assert world.git("show", "HEAD:a") == changed(1, b"one").decode().rstrip("\n")
    world.undo("p")
    assert world.files() == before


@pytest.mark.parametrize("mark", ["assume-unchanged", "skip-worktree"])
def test_a_hidden_edit_of_the_same_line_is_a_conflict(build: Build, mark: str) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": changed(1, b"one")})
    world.git("update-index", f"--{mark}", "a")
    world.write({"a": changed(1, b"mine")})
    assert [conflict.hunks for conflict in refused(world)] == [
        ("line 1, current:\n  | mine\nproposed:\n  | one",)
    ]


@pytest.mark.parametrize("when", ["before the plan, and again", "after the plan"])
def test_reads_a_split_index(build: Build, when: str) -> None:
    world = build({"a": LINES, "b": b"x\n"})
    world.git("config", "splitIndex.maxPercentChange", "0")
    if when != "after the plan":
        world.git("update-index", "--split-index")
    world.plan("p", {"a": changed(1, b"one")})
    world.write({"b": b"mine\n"})
    world.git("add", "b")
    world.git("update-index", "--split-index")
    before = world.files()
    world.apply("p")
    world.undo("p")
    assert world.files() == before


@pytest.mark.parametrize("options", [("--cone", "--sparse-index"), ("--no-cone",)])
@pytest.mark.parametrize("edit", [changed(1, b"one"), None])
def test_files_outside_a_sparse_checkout_are_applied_after_checkout(
    build: Build, options: tuple[str, ...], edit: Edit
) -> None:
    world = build({"in/a": LINES, "out/a": LINES})
    world.git("sparse-checkout", "set", *options, "in")
    world.plan("p", {"out/a": edit})
    (conflict,) = refused(world)
    assert (conflict.path, conflict.kind) == ("out/a", "not checked out")
    world.git("sparse-checkout", "add", "out")
    before = world.files()
    world.apply("p")
    world.undo("p")
    assert world.files() == before


def test_an_edit_after_the_preparation_is_detected(build: Build) -> None:
    world = build({"a": LINES, "b": b"x\n"})
    world.plan("p", {"a": changed(1, b"one")})
    with world.prepare("p") as preparation:
        world.write({"a": changed(9, b"mine")})
        with pytest.raises(ApplyConflict, match="conflicts with the current state of a") as caught:
            preparation.apply()
        assert "changed since" in caught.value.details
    assert (world.resource / "a").read_bytes() == changed(9, b"mine")


def test_an_edit_elsewhere_after_the_preparation_does_not_matter(build: Build) -> None:
    world = build({"a": LINES, "b": b"x\n"})
    world.plan("p", {"a": changed(1, b"one")})
    with world.prepare("p") as preparation:
        world.write({"b": b"mine\n"})
        preparation.apply()
    assert (world.resource / "a").read_bytes() == changed(1, b"one")
    assert (world.resource / "b").read_bytes() == b"mine\n"
    world.undo("p")
    assert (world.resource / "b").read_bytes() == b"mine\n"


@pytest.mark.parametrize("mine", [b"one\r\ntwo\r\n", b"one\r\nTWO\r\n"], ids=["a word, too", "nothing else"])
def test_a_conflict_says_that_line_endings_differ(build: Build, mine: bytes) -> None:
    world = build({"a": b"one\ntwo\n"})
    world.plan("p", {"a": b"one\nTWO\n"})
    world.write({"a": mine})
    with pytest.raises(ApplyConflict) as caught:
        world.apply("p")
    assert "lines 1-2 (line endings differ), current:" in caught.value.details


def test_long_conflicts_are_cut_and_say_so(build: Build) -> None:
    world = build({"a": b"x\n"})
    world.plan("p", {"a": b"".join(b"plan %d\n" % n for n in range(100))})
    world.write({"a": b""})
    (conflict,) = refused(world)
    assert "current:\n  (nothing)" in conflict.hunks[0]
    assert "(and 60 more lines)" in conflict.hunks[0]


def test_refuses_a_merge_over_an_interrupted_apply_of_another_state(build: Build) -> None:
    world = build({"a": LINES})
    world.plan("p", {"a": changed(1, b"one")})
    for name in ("old", "new"):
        (world.resource / ".git/cleveragents/01KAAAAAAAAAAAAAAAAAAAAAAA" / name).mkdir(parents=True)
    with pytest.raises(ApplyRefused, match="01KAAAAAAAAAAAAAAAAAAAAAAA holds the only copies"):
        world.apply("p")


@pytest.mark.parametrize("naive", [WritesFilesOneByOne, ChecksOut, AppliesPatch])
def test_these_tests_catch_naive_implementations(build: Build, naive: type) -> None:
    """Each of them loses an uncommitted edit, or half of the plan, where ours merges or refuses."""
    world = build({"a": LINES, "b": LINES})
    world.plan("p", {"a": changed(1, b"one"), "b": changed(5, b"five")})
    world.write({"a": changed(9, b"mine"), "b": changed(5, b"mine")})
    before = world.files()
    naive().apply(world.sandboxes["p"], world.trees["p"])
    after = world.files()
    merged = before | {"a": ("file 644", changed(9, b"mine", changed(1, b"one")))}
    assert after not in (before, merged | {"b": ("file 644", changed(5, b"five"))}), (
        "neither refused nor merged"
    )


def test_a_secret_is_masked_before_a_long_side_is_cut() -> None:
    secrets = KnownSecrets()
    secrets.add("first-half-of-it\nsecond-half-of-it")
    side = "\n".join([*("line" for _ in range(39)), "first-half-of-it", "second-half-of-it", "end"])
    try:
        (hunk,) = conflict_hunks(f"<<<<<<< a\n{side}\n=======\nother\n>>>>>>> b\n".encode(), "a", "b")
    finally:
        secrets.forget()
    assert "half-of-it" not in hunk
    assert "more lines" in hunk
