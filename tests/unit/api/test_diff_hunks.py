"""Differences as programs read them: every line at its place, whatever it and its file look like."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cleveragents.api.plans import diffs
from cleveragents.api.plans.diffs import Hunk, hunks_by_path, patch_of_files
from cleveragents.changes.model.review import Review, ReviewKind
from cleveragents.core.text.redaction import MASK, KnownSecrets
from cleveragents.plans.store.sql_plan_records import SqlReviewStore
from tests.apply_bench import git
from tests.plan_bench import plan_bench, write

LINES = st.lists(
    st.sampled_from(["", "-- a", "++ b", "@@ -1 +1 @@", "+x", "-y", "diff --git a/x b/x", "\\ none", "\r"]),
    max_size=12,
)


def diff(directory: Path, *names: str) -> bytes:
    said = git(directory, "diff", "--no-color", "--no-renames", "-U1", *names, check=False)
    return f"{said}\n".encode("utf-8", "surrogateescape") if said else b""


def replayed(before: Sequence[str], hunks: Sequence[Hunk]) -> list[str]:
    """Apply the hunks to the old lines."""
    now = list(before)
    for hunk in reversed(hunks):
        old = [text for kind, _, _, text in hunk.lines if kind != "add"]
        new = [text for kind, _, _, text in hunk.lines if kind != "remove"]
        begins = hunk.old_start - 1 if old else hunk.old_start
        assert now[begins : begins + len(old)] == old
        now[begins : begins + len(old)] = new
    return now


@settings(max_examples=30)
@given(before=LINES, after=LINES)
def test_lines_that_look_like_headers_are_lines(before: list[str], after: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for side, lines in (("old", before), ("new", after)):
            (directory / side).write_text("".join(f"{line}\n" for line in lines), newline="")
        found = hunks_by_path(diff(directory, "--no-index", "old", "new"))
    hunks = found.get("new", [])
    assert replayed(before, hunks) == after
    for hunk in hunks:
        numbers = [(old, new) for _, old, new, _ in hunk.lines]
        olds = [old for old, _ in numbers if old is not None]
        news = [new for _, new in numbers if new is not None]
        assert olds == list(range(hunk.old_start, hunk.old_start + len(olds)))
        assert news == list(range(hunk.new_start, hunk.new_start + len(news)))


def test_files_are_found_by_their_names_however_git_spells_them(tmp_path: Path) -> None:
    names = ["plain.txt", "with space.txt", 'quo"te\t.txt', "line\nbreak.txt", "größe.txt", "dir/deep.txt"]
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "core.quotePath", "false")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one\n")
    git(tmp_path, "add", "-A")
    (tmp_path / names[0]).unlink()
    for name in names[1:]:
        (tmp_path / name).write_text("two\n")
    found = hunks_by_path(diff(tmp_path))
    assert sorted(found) == sorted(names)
    assert [line[0] for line in found["plain.txt"][0].lines] == ["remove"]


def test_a_file_without_a_last_newline_keeps_what_follows_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("a", "b"):
        (tmp_path / name).write_text("one")
    git(tmp_path, "add", "-A")
    (tmp_path / "a").write_text("two")
    (tmp_path / "b").write_bytes(b"\xff\n")
    found = hunks_by_path(diff(tmp_path))
    assert [hunk.lines for hunk in found["a"]] == [[("remove", 1, None, "one"), ("add", None, 1, "two")]]
    assert [line[3] for line in found["b"][0].lines] == ["one", "\\xff"]


KEY = ["-----BEGIN PRIVATE KEY-----", *("c2VjcmV0" * 8 for _ in range(3)), "-----END PRIVATE KEY-----"]


def test_lines_are_shown_without_known_secrets_and_those_that_go_over_several(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("PASSWORD=hunter2\n" + "\n".join(KEY))
    git(tmp_path, "add", "file")
    new_key = [line.replace("c2VjcmV0", "bmV3b25l") for line in KEY]
    (tmp_path / "file").write_text("PASSWORD=hunter3\n" + "\n".join([*new_key, "end"]))
    secrets = KnownSecrets()
    for key in (KEY, new_key):
        secrets.add("\n".join(key[1:4]))
    patch = diffs.masked_patch(diff(tmp_path)).decode()
    assert "hunter3" in patch, "a name hides nothing from a reviewer"
    (hunk,) = diffs._shown(hunks_by_path(diff(tmp_path))["file"], diffs.DiffBounds())
    shown = [(line["kind"], line["text"]) for line in hunk["lines"]]
    assert shown[:3] == [("remove", "PASSWORD=hunter2"), ("add", "PASSWORD=hunter3"), ("context", KEY[0])]
    gone = [("remove", text) for text in (MASK, MASK, MASK, KEY[-1])]
    assert shown[3:] == [*gone, *(("add", text) for text in (MASK, MASK, MASK, KEY[-1], "end"))]


def test_a_known_secret_of_several_lines_hides_its_lines_alone(tmp_path: Path) -> None:
    secrets = KnownSecrets()
    secrets.add("first half of it\nsecond half of it")
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("")
    git(tmp_path, "add", "file")
    (tmp_path / "file").write_text("a\nfirst half of it\nsecond half of it\n")
    (hunk,) = diffs._shown(hunks_by_path(diff(tmp_path))["file"], diffs.DiffBounds())
    assert [line["text"] for line in hunk["lines"]] == ["a", MASK, MASK]


def test_a_patch_is_cut_down_to_files() -> None:
    first = b"diff --git a/x y b/x y\n--- a/x y\n+++ b/x y\n@@ -1 +1 @@\n-a\n+b\n"
    second = b'diff --git "a/\\303\\244" "b/\\303\\244"\n@@ -1 +1 @@\n-a\n+b\n'
    assert patch_of_files(first + second, ["x y"]) == first
    assert patch_of_files(first + second, ["\u00e4"]) == second
    odd = b"diff --git a/o\xff b/o\xff\n+3\n"
    assert patch_of_files(first + odd, ["o\ufffd"]) == odd
    moved = b"diff --git a/x b/z\nsimilarity index 100%\nrename from x\nrename to z\n"
    assert patch_of_files(first + moved, ["elsewhere"]) == moved


class ReviewedMeanwhile(SqlReviewStore):
    """Reviews of which another person changes one right after each read."""

    def of_plan(self, plan_id: str) -> list[Review]:
        found = list(super().of_plan(plan_id))
        verdict = Review(plan_id, ReviewKind.PATH, "one.txt", accepted=bool(found))
        self.set(verdict, now=datetime.now(UTC))
        return found


def test_the_tree_and_the_verdicts_of_a_diff_belong_together(tmp_path: Path) -> None:
    with plan_bench(tmp_path, isolation="off") as bench:
        plan = bench.done(write("one.txt", "1\n"), write("two.txt", "2\n"))
        whole = bench.parts.result.tree(plan, bench.sandbox(plan))
        vars(bench.parts)["reviews"] = ReviewedMeanwhile(
            bench.container.database, bench.container.identifiers
        )
        vars(bench.parts).pop("result")
        found = diffs.diff_of(bench.parts, plan)
    verdicts = [
        (file["path"], file["accepted"], [hunk["accepted"] for hunk in file["hunks"]])
        for file in found["files"]
    ]
    assert verdicts == [("one.txt", True, [True]), ("two.txt", True, [True])]
    assert found["tree"] == whole
