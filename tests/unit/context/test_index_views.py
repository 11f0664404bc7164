"""The files of a place: work trees, commits and plain directories, with unusual contents."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.index.sqlite_code_index import Bounds
from cleveragents.context.index.view import blob_digest, read_regular
from cleveragents.context.model.code import Field
from cleveragents.core.errors import Closed, SourceChanged, SourceMissing
from cleveragents.git.blob_reader import BlobReader
from tests.index_bench import COUNTED, Bench, Tree, found_in, old
from tests.processes import children


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(tmp_path)
    monkeypatch.setenv(COUNTED, str(made.counts))
    return made


def test_a_work_tree_holds_tracked_changed_and_new_files_but_none_that_are_ignored_or_gone(
    bench: Bench,
) -> None:
    tree = bench.repository().write(
        {
            "a.py": "alpha",
            "b.py": "beta",
            "gone.py": "gone",
            "moved.py": "moved",
            ".gitignore": "*.log\nbuild/\n",
        }
    )
    tree.commit()
    tree.write({"b.py": "changed", "new/c.py": "gamma", "x.log": "log", "build/d.py": "delta"})
    tree.write({"node_modules/e.js": "epsilon", "vendor/f.py": "zeta"})
    (tree.root / "gone.py").unlink()
    (tree.root / "moved.py").rename(tree.root / "there.py")
    with bench.open(tree) as snapshot:
        held = [file.path for file in snapshot.files]
        assert held == [".gitignore", "a.py", "b.py", "new/c.py", "there.py", "vendor/f.py"]
        assert snapshot.status.complete
        assert snapshot.status.notes == ()
        assert found_in(snapshot, "changed") == {"b.py": [(1, 1)]}
        assert found_in(snapshot, "beta") == {}
        assert found_in(snapshot, "moved") == {"there.py": [(1, 1)]}
        assert snapshot.text("b.py") == "changed"


def test_a_commit_holds_what_was_committed_whatever_the_files_say_now(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "deep/b.py": "beta"})
    first = tree.commit()
    tree.write({"a.py": "other"})
    (tree.root / "deep/b.py").unlink()
    tree.commit()
    tree.write({"a.py": "third", "new.py": "new"})
    with bench.open(tree, first) as snapshot:
        assert [file.path for file in snapshot.files] == ["a.py", "deep/b.py"]
        assert [file.size for file in snapshot.files] == [5, 4]
        assert snapshot.text("a.py") == "alpha"
        assert snapshot.text("deep/b.py") == "beta"
        assert found_in(snapshot, "alpha") == {"a.py": [(1, 1)]}
    assert bench.paths(tree, "HEAD") == ["a.py"]
    assert bench.paths(tree, first[:8]) == ["a.py", "deep/b.py"]


def test_missing_files_are_reported(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha"})
    tree.commit()
    for place, problem in (
        (CodePlace(tree.root / "nowhere"), "no such directory"),
        (CodePlace(tree.root / "a.py"), "not a directory"),
        (CodePlace(tree.root, "abcdef"), "no such commit"),
        (CodePlace(tree.root, "--all"), "no such commit"),
        (CodePlace(bench.directory_tree().root, "HEAD"), "not a git repository"),
    ):
        with pytest.raises(SourceMissing, match=problem), bench.index().open(place):
            pass


def test_only_changed_contents_are_analysed_again(bench: Bench) -> None:
    tree = bench.repository().write({f"m{n}.py": f"word{n}" for n in range(20)})
    tree.commit()
    bench.paths(tree)
    assert len(bench.analysed()) == 20
    tree.write({"m3.py": "fresh", "copy.py": "word4"})
    bench.paths(tree)
    assert bench.analysed() == ["m3.py"]
    tree.commit()
    bench.paths(tree)
    bench.paths(tree, "HEAD~0")
    tree.git("mv", "m5.py", "renamed.py")
    bench.paths(tree)
    assert bench.analysed() == []


def test_all_work_trees_of_a_repository_and_its_sandboxes_share_one_index(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "b.py": "beta"})
    tree.commit()
    bench.paths(tree)
    bench.analysed()
    tree.git("worktree", "add", "--quiet", "../linked")
    Tree(bench.directory / "linked").write({"b.py": "gamma"})
    assert bench.paths(bench.directory / "linked") == ["a.py", "b.py"]
    assert bench.analysed() == ["b.py"]
    copy = bench.directory_tree("sandbox").write({"a.py": "alpha", "b.py": "beta", "c.py": "delta"})
    with bench.index().open(CodePlace(copy.root, home=tree.root)) as snapshot:
        assert len(snapshot.files) == 3
    assert bench.analysed() == ["c.py"]
    assert bench.file.exists()


def test_a_subdirectory_of_a_repository_is_indexed_alone(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "part/b.py": "beta", "part/new.py": "new"})
    tree.git("add", "a.py", "part/b.py")
    tree.git("commit", "--quiet", "-m", "two")
    assert bench.paths(tree.root / "part") == ["b.py", "new.py"]
    assert bench.paths(tree.root / "part", "HEAD") == ["b.py"]
    with bench.open(tree.root / "part", "HEAD") as snapshot:
        assert snapshot.text("b.py") == "beta"


def test_an_ignored_directory_is_looked_at_without_git(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", ".gitignore": "out/", "out/b.py": "beta"})
    tree.commit()
    assert bench.paths(tree.root / "out") == ["b.py"]


def test_a_repository_with_a_line_break_in_its_name_is_read_without_git(bench: Bench) -> None:
    tree = bench.repository("two\nlines").write({"a.py": "alpha"})
    with bench.open(tree) as snapshot:
        assert [file.path for file in snapshot.files] == ["a.py"]
        assert "line break" in snapshot.status.notes[0]


def test_an_empty_and_a_bare_repository_are_no_trouble(bench: Bench) -> None:
    tree = bench.repository()
    assert bench.paths(tree) == []
    tree.git("clone", "--quiet", "--bare", ".", "../empty.git")
    assert bench.paths(bench.directory / "empty.git") == []
    tree.write({"a.py": "alpha"})
    assert bench.paths(tree) == ["a.py"]
    tree.commit()
    tree.git("clone", "--quiet", "--bare", ".", "../full.git")
    with bench.open(bench.directory / "full.git") as snapshot:
        assert snapshot.text("a.py") == "alpha"
        assert found_in(snapshot, "alpha") == {"a.py": [(1, 1)]}


def test_git_s_own_directory_is_a_directory_like_any_other(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha"})
    tree.commit()
    assert "HEAD" in bench.paths(tree.root / ".git")


def test_names_of_any_kind_are_found_or_named_in_a_note(bench: Bench) -> None:
    for tree in (bench.repository(), bench.directory_tree()):
        tree.write({"größe 😀.py": "size", "line\nbreak.py": "broken", "-n.py": "option", "tab\t.py": "tab"})
        (tree.root / os.fsdecode(b"caf\xe9.py")).write_bytes(b"coffee")
        views: list[str | None] = [None]
        if (tree.root / ".git").exists():
            bench.paths(tree)
            tree.commit()
            views.append("HEAD")
        for commit in views:
            with bench.open(tree, commit) as snapshot:
                names = [file.path for file in snapshot.files]
                assert names == ["-n.py", "größe 😀.py", "line\nbreak.py", "tab\t.py"]
                assert snapshot.text("größe 😀.py") == "size"
                (note,) = snapshot.status.notes
                assert note == "1 left out, because their names are not UTF-8: caf\\xe9.py"


def test_a_directory_with_a_name_that_is_not_utf_8_is_searched_and_forgotten(bench: Bench) -> None:
    name = os.fsdecode(b"caf\xe9")
    for tree in (bench.repository(name), bench.directory_tree(f"plain {name}")):
        tree.write({f"{n}.py": f"coffee number{n}" for n in range(4)})
        for _ in range(2):
            with bench.index(alone=2).open(CodePlace(tree.root)) as snapshot:
                assert snapshot.status.complete
                assert snapshot.status.notes == ()
                assert len(found_in(snapshot, "coffee")) == 4
                assert snapshot.text("1.py") == "coffee number1"
        assert len(bench.analysed()) == 4
        bench.index().prune()
        assert bench.file.exists()
        shutil.rmtree(tree.root)
        bench.index().prune()
        assert list(bench.indexes.glob("*.db")) == []


def test_links_submodules_nested_repositories_and_pipes_are_passed_over(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "d/b.py": "beta"})
    (tree.root / "loop").symlink_to(".")
    (tree.root / "d/link.py").symlink_to("../a.py")
    tree.commit()
    other = bench.repository("other").write({"c.py": "gamma"})
    other.commit()
    tree.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.root), "sub")
    tree.git("clone", "--quiet", str(other.root), "nested")
    os.mkfifo(tree.root / "pipe.py")
    assert bench.paths(tree) == [".gitmodules", "a.py", "d/b.py"]
    tree.commit()
    assert bench.paths(tree, "HEAD") == [".gitmodules", "a.py", "d/b.py"]
    (tree.root / "a.py").unlink()
    (tree.root / "a.py").symlink_to("d/b.py")
    assert bench.paths(tree) == [".gitmodules", "d/b.py"]


def test_nothing_is_read_through_a_link_that_took_a_directory_s_place(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "keys/secret.py": "harmless"})
    tree.commit()
    bench.directory_tree("elsewhere").write({"secret.py": "hidden"})
    (tree.root / "keys/secret.py").unlink()
    (tree.root / "keys").rmdir()
    (tree.root / "keys").symlink_to("../elsewhere")
    with bench.open(tree) as snapshot:
        assert [file.path for file in snapshot.files] == ["a.py"]
        assert found_in(snapshot, "hidden") == {}


def test_a_plain_directory_is_walked_without_what_tools_make_or_git_ignores(bench: Bench) -> None:
    tree = bench.directory_tree().write(
        {
            "a.py": "alpha",
            "sub/b.py": "beta",
            "sub/.gitignore": "*.gen\n/made/\n",
            "sub/c.gen": "generated",
            "sub/made/d.py": "made",
            ".hidden/e.py": "hidden",
            ".env": "SECRET=1",
            "node_modules/f.js": "foreign",
            "build/g.py": "built",
        }
    )
    (tree.root / "loop").symlink_to(".")
    assert bench.paths(tree) == ["a.py", "sub/b.py"]
    with bench.open(tree) as snapshot:
        assert snapshot.text("sub/b.py") == "beta"


def test_no_file_name_disables_gitignore_files(bench: Bench) -> None:
    odd = (":(top)a.py", ":!b.py", ":(exclude)*", "*", "?.py", "[a].py")
    tree = bench.directory_tree().write({name: name for name in odd})
    tree.write(
        {".gitignore": "*.log\n", "x.log": "log", ":(icase)y.log": "log", ":/z.py": "z", ":/z.log": "log"}
    )
    with bench.open(tree) as snapshot:
        assert snapshot.status.notes == ()
        expected = sorted([*odd, ":/z.py"])
        assert [file.path for file in snapshot.files] == expected


def test_files_that_may_be_ignored_are_left_out_where_git_does_not_tell(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = bench.directory_tree().write(
        {
            "a.py": "alpha",
            "sub/.gitignore": "*.log",
            "sub/b.log": "log",
            "sub/deep/c.log": "log",
            "subtle.py": "s",
        }
    )
    programs = bench.directory_tree("programs").write(
        {
            "git": f"""#!/bin/sh
case "$*" in *check-ignore*) echo "fatal: no" >&2; exit 128;; esac
exec {shutil.which("git")} "$@"
"""
        }
    )
    (programs.root / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs.root), prepend=os.pathsep)
    with bench.open(tree) as snapshot:
        assert [file.path for file in snapshot.files] == ["a.py", "subtle.py"]
        (note,) = snapshot.status.notes
        why, _, names = note.rpartition(": ")
        assert why == "2 left out, because they may be ignored (git check-ignore failed: fatal: no)"
        assert names == "sub/b.log, sub/deep/c.log"


def test_files_that_cannot_be_read_are_left_out_with_a_note(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions do not stop root, so the system's error is simulated here."""
    names = {"secret.py", "tracked.py", "a.py", "gone.py"}
    real_open, real_lstat = os.open, os.lstat

    def refuse(path: Any, *options: Any, **named: Any) -> int:
        if path == "gone.py":
            (tree.root / path).unlink()
        if path in ("secret.py", "tracked.py"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real_open(path, *options, **named)

    def refuse_way(path: Any, **named: Any) -> os.stat_result:
        if "closed/" in os.fsdecode(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real_lstat(path, **named)

    for tree, missed in (
        (bench.repository(), "closed/in.py, tracked.py, secret.py"),
        (bench.directory_tree(), "secret.py, tracked.py, closed/in.py"),
    ):
        tree.write({"tracked.py": "tracked", "closed/in.py": "in"})
        if (tree.root / ".git").exists():
            tree.commit()
        tree.write({name: f"new {name}" for name in names})
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refuse)
            patched.setattr(os, "lstat", refuse_way)
            with bench.open(tree) as snapshot:
                assert [file.path for file in snapshot.files] == ["a.py"]
                assert snapshot.status.notes == (f"3 left out, because they cannot be read: {missed}",)


def test_a_directory_that_cannot_be_listed_is_left_out_with_a_note(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = bench.directory_tree().write({"a.py": "alpha", "shut/b.py": "beta"})
    real = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("shut/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with bench.open(tree) as snapshot:
        assert [file.path for file in snapshot.files] == ["a.py"]
        assert snapshot.status.notes == ("1 left out, because they cannot be read: shut/",)


def test_binary_and_huge_files_are_there_but_not_searched(bench: Bench) -> None:
    tree = bench.repository().write(
        {"a.py": "alpha", "image.bin": b"\0\1\2", "huge.txt": b"alpha " * 200_000}
    )
    for _ in range(2):
        with bench.open(tree) as snapshot:
            assert [(file.path, file.size) for file in snapshot.files] == [
                ("a.py", 5),
                ("huge.txt", 1_200_000),
                ("image.bin", 3),
            ]
            assert snapshot.status.complete
            assert found_in(snapshot, "alpha") == {"a.py": [(1, 1)]}
            documents = {file.path: file.document for file in snapshot.files}
            told = snapshot.analyses(list(documents.values()))
            assert told[documents["huge.txt"]].opaque == "too large"
            assert told[documents["image.bin"]].opaque == "binary"
        tree.commit()
    with bench.open(tree, "HEAD") as snapshot:
        assert (
            snapshot.analyses([snapshot.files[1].document])[snapshot.files[1].document].opaque == "too large"
        )
    assert "huge.txt" not in bench.analysed()


def test_the_content_of_a_file_is_remembered_by_its_time_unless_that_is_too_new_to_tell(bench: Bench) -> None:
    tree = bench.directory_tree().write({"a.py": "alpha"})
    touched = (tree.root / "a.py").stat().st_ctime_ns

    def remembered() -> list[str]:
        with closing(sqlite3.connect(bench.file)) as connection:
            return [row[0] for row in connection.execute("SELECT path FROM known_file")]

    for seconds, known in ((1, []), (10, ["a.py"])):
        moment = touched + seconds * 10**9
        with bench.index(now_ns=partial(int, moment)).open(CodePlace(tree.root)):
            pass
        assert remembered() == known
    with closing(sqlite3.connect(bench.file)) as connection, connection:
        connection.execute("UPDATE known_file SET digest = ?", (blob_digest(b"other"),))
    # It trusts the remembered stamp and reads nothing; with a new time, it reads again.
    assert bench.file_digest(tree, "a.py") == blob_digest(b"other").hex()
    old(tree.root / "a.py")
    assert bench.file_digest(tree, "a.py") == blob_digest(b"alpha").hex()
    (tree.root / "a.py").unlink()
    bench.paths(tree)
    assert remembered() == []


def test_a_file_as_new_as_gits_index_is_read(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha"})
    tree.commit()
    later = time.time_ns() + 10**10

    def read() -> list[str]:
        with bench.index(now_ns=lambda: later).open(CodePlace(tree.root)):
            pass
        with closing(sqlite3.connect(bench.file)) as connection:
            return [row[0] for row in connection.execute("SELECT path FROM known_file")]

    os.utime(tree.root / ".git/index", ns=(later, later))
    assert read() == []
    old(tree.root / ".git/index")
    assert read() == ["a.py"]


def test_a_recent_change_with_equal_time_and_size_is_noticed(
    bench: Bench,
) -> None:
    for tree in (bench.directory_tree(), bench.repository()):
        tree.write({"a.py": "alpha"})
        if (tree.root / ".git").exists():
            tree.commit()
        path = tree.root / "a.py"
        for word in ("gamma", "delta", "omega"):
            bench.paths(tree)
            status = path.stat()
            path.write_bytes(word.encode())
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            with bench.open(tree) as snapshot:
                assert found_in(snapshot, word) == {"a.py": [(1, 1)]}


def test_a_snapshot_keeps_its_content_and_reports_changed_files(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "b.py": "beta"})
    tree.commit()
    tree.write({"b.py": "dirty"})
    with bench.open(tree) as snapshot:
        tree.write({"a.py": "other", "b.py": "other", "c.py": "new"})
        assert [file.path for file in snapshot.files] == ["a.py", "b.py"]
        assert snapshot.text("a.py") == "alpha"
        with pytest.raises(SourceChanged, match=r"b\.py"):
            snapshot.text("b.py")
        with pytest.raises(KeyError):
            snapshot.text("c.py")
        with bench.open(bench.directory_tree().write({"d.py": "delta"})) as plain:
            Tree(bench.directory / "plain").write({"d.py": "other"})
            with pytest.raises(SourceChanged):
                plain.text("d.py")
        assert found_in(snapshot, "dirty") == {"b.py": [(1, 1)]}
    for ask in (lambda: snapshot.text("a.py"), lambda: snapshot.postings(Field.BODY, ["alpha"])):
        with pytest.raises(Closed):
            ask()


def test_files_that_are_there_twice_are_searched_once(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha\n", "b/a.py": "alpha\n", "c.py": "alpha beta"})
    with bench.open(tree) as snapshot:
        documents = [file.document for file in snapshot.files]
        assert documents[0] == documents[1] != documents[2]
        assert len(snapshot.postings(Field.BODY, ["alpha"])["alpha"].chunks) == 2
        assert set(found_in(snapshot, "alpha")) == {"a.py", "b/a.py", "c.py"}
        assert snapshot.chunks.lengths.sum() == 3
        assert snapshot.chunks.first_chunk.tolist()[-1] == 2


def test_more_files_than_the_bound_are_left_out_with_a_note(bench: Bench) -> None:
    for tree in (bench.repository(), bench.directory_tree()):
        tree.write({f"{n}.py": f"word{n}" for n in range(5)})
        with bench.index(bounds=Bounds(files=3)).open(CodePlace(tree.root)) as snapshot:
            assert [file.path for file in snapshot.files] == ["0.py", "1.py", "2.py"]
            assert len(snapshot.status.notes) == 1


def test_a_merge_in_progress_shows_what_is_in_the_file(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "base\n"})
    tree.commit()
    tree.git("checkout", "--quiet", "-b", "side")
    tree.write({"a.py": "side\n"}).commit()
    tree.git("checkout", "--quiet", "main")
    tree.write({"a.py": "main\n"}).commit()
    with pytest.raises(Exception, match="merge"):
        tree.git("merge", "side")
    with bench.open(tree) as snapshot:
        assert [file.path for file in snapshot.files] == ["a.py"]
        assert set(found_in(snapshot, "<<<<<<<")) == {"a.py"}


def test_no_program_that_a_repository_names_is_run(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", ".gitattributes": "*.py filter=evil diff=evil\n"})
    tree.commit()
    for name in ("filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "core.fsmonitor"):
        tree.git("config", name, "touch ../evil; cat")
    tree.write({"a.py": "other", "b.py": "new"})
    assert bench.paths(tree) == [".gitattributes", "a.py", "b.py"]
    assert bench.paths(tree, "HEAD") == [".gitattributes", "a.py"]
    assert not (bench.directory / "evil").exists()


def test_a_content_that_the_repository_lacks_is_left_out_with_a_note(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "b.py": "beta"})
    commit = tree.commit()
    name = tree.git("rev-parse", "HEAD:b.py")
    (tree.root / ".git/objects" / name[:2] / name[2:]).unlink()
    (tree.root / "b.py").unlink()
    with bench.open(tree, commit) as snapshot:
        assert (snapshot.status.files, snapshot.status.indexed) == (2, 1)
        assert "b.py" in snapshot.status.notes[0]
        with pytest.raises(SourceChanged):
            snapshot.text("b.py")
        assert snapshot.analyses([file.document for file in snapshot.files]).keys() == {
            snapshot.files[0].document
        }


def test_a_repository_that_git_cannot_read_is_read_without_git(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", ".gitignore": "*.log", "b.log": "log"})
    commit = tree.commit()
    (tree.root / ".git/index").write_bytes(b"nothing that git wrote")
    with bench.open(tree) as snapshot:
        assert [file.path for file in snapshot.files] == ["a.py"]
        (note,) = snapshot.status.notes
        assert note.startswith("read without git: ")
    name = tree.git("rev-parse", f"{commit}^{{tree}}")
    (tree.root / ".git/objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(SourceMissing), bench.open(tree, commit):
        pass


def test_without_the_git_command_files_are_found_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = bench.repository().write({"a.py": "alpha", ".gitignore": "*.log", "b.log": "log"})
    tree.commit()
    monkeypatch.setenv("PATH", str(bench.directory))
    with bench.open(tree) as snapshot:
        assert [file.path for file in snapshot.files] == ["a.py", "b.log"]
        without, ignoring = snapshot.status.notes
        assert "git is not installed" in without
        assert ignoring.startswith(".gitignore files are not applied: ")
    with pytest.raises(SourceMissing, match="not installed"), bench.open(tree, "HEAD"):
        pass


def test_a_repository_with_longer_names_is_read_as_any_other(bench: Bench) -> None:
    tree = bench.directory_tree()
    tree.git("init", "--quiet", "--object-format=sha256")
    tree.write({"a.py": "alpha", "b.py": "beta"}).commit()
    tree.write({"b.py": "gamma"})
    with bench.open(tree) as snapshot:
        assert {len(file.digest) for file in snapshot.files} == {64}
        assert found_in(snapshot, "gamma") == {"b.py": [(1, 1)]}
        tree.write({"a.py": "other"})
        assert snapshot.text("a.py") == "alpha"
    assert bench.paths(tree, "HEAD") == ["a.py", "b.py"]


def test_the_deadline_ends_the_walk_of_a_large_directory(bench: Bench) -> None:
    tree = bench.directory_tree().write({f"d{n}/{n}.py": f"word{n}" for n in range(300)})
    with bench.open(tree, seconds=0.0) as snapshot:
        assert 0 < snapshot.status.files < 300
        assert snapshot.status.indexed == 0
    flat = bench.directory_tree("flat").write({f"{n}.py": f"word{n}" for n in range(300)})
    with bench.open(flat, seconds=0.0) as snapshot:
        assert snapshot.status.files == 256
        assert "out of time before all files were read" in snapshot.status.notes


def test_contents_come_through_one_process_that_is_gone_afterwards(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "b.py": "", "c.py": "line\n" * 50_000})
    tree.commit()
    names = {path: tree.git("rev-parse", f"HEAD:{path}") for path in ("a.py", "b.py", "c.py")}
    reader = BlobReader(tree.root)
    try:
        assert reader.read(names["c.py"]) == b"line\n" * 50_000
        assert reader.read("0" * 40) is None
        assert reader.read(tree.git("rev-parse", "HEAD")) is None
        (process,) = children()
        assert [reader.read(names[path]) for path in ("a.py", "b.py")] == [b"alpha", b""]
        assert children() == [process]
        process.kill()
        assert reader.read(names["a.py"]) is None
        assert reader.read(names["a.py"]) == b"alpha"
    finally:
        reader.close()
    assert children() == []
    assert reader.read(names["a.py"]) is None


def test_an_interrupted_reader_gives_the_next_caller_its_own_content(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "c.py": "line\n" * 50_000})
    tree.commit()
    with closing(BlobReader(tree.root)) as reader:
        first = reader.read(tree.git("rev-parse", "HEAD:a.py"))
        process = reader._process
        assert process is not None
        real = process.stdout
        assert real is not None

        class Interrupted:
            def readline(self) -> bytes:
                raise KeyboardInterrupt

            def close(self) -> None:
                real.close()

        process.stdout = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            reader.read(tree.git("rev-parse", "HEAD:c.py"))
        assert reader.read(tree.git("rev-parse", "HEAD:a.py")) == first == b"alpha"


@pytest.mark.parametrize("how", ["read", "close"])
def test_no_process_is_left_by_threads_that_read_and_close_at_once(bench: Bench, how: str) -> None:
    tree = bench.repository().write({"a.py": "alpha"})
    tree.commit()
    name = tree.git("rev-parse", "HEAD:a.py")
    reader = BlobReader(tree.root)
    reader.read(name)
    process = reader._process
    assert process is not None
    real = process.stdout
    assert real is not None
    entered = threading.Event()
    disturbed = threading.Event()

    class Slow:
        def readline(self) -> bytes:
            entered.set()
            # Long enough for a process that the lock does not stop.
            disturbed.wait(0.3)
            return bytes(real.readline())

        read = staticmethod(real.read)
        close = staticmethod(real.close)

    process.stdout = Slow()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(reader.read, name)
        assert entered.wait(30)
        second = threads.submit(reader.close if how == "close" else partial(reader.read, name))
        second.add_done_callback(lambda _: disturbed.set())
        assert first.result() == b"alpha"
        second.result()
    if how == "read":
        reader.close()
    assert children() == []


def test_only_regular_files_of_a_fitting_size_are_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"four")
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    assert read_regular(file, at_most=4) == b"four"
    assert read_regular(file, at_most=3) is None
    for name in ("", "link", "pipe", "nowhere"):
        assert read_regular(tmp_path / name, at_most=100) is None
