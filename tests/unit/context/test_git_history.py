"""The history of a repository: read once, stored, and returned without asking git again."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.search.git_history import GitCommitHistory
from tests.index_bench import Bench, Tree


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def past(
    bench: Bench, tree: Tree | Path, commit: str | None = None, limit: int = 100
) -> list[tuple[str, ...]]:
    root = tree.root if isinstance(tree, Tree) else tree
    found = GitCommitHistory(bench.indexes, version=1).commits(CodePlace(root, commit), limit=limit)
    return [(one.message, *one.paths) for one in found]


def kept(bench: Bench) -> int:
    with closing(sqlite3.connect(bench.file)) as connection:
        return int(connection.execute("SELECT count(*) FROM past_commit").fetchone()[0])


def test_commits_come_newest_first_without_merges_and_with_their_paths(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha", "deep/ü\n.py": "beta"})
    first = tree.commit("first\n\nwith a body")
    tree.git("checkout", "--quiet", "-b", "side")
    tree.write({"side.py": "side"}).commit("aside")
    tree.git("checkout", "--quiet", "main")
    tree.git("mv", "a.py", "b.py")
    tree.commit("moved")
    tree.git("merge", "--quiet", "--no-edit", "side")
    tree.commit("nothing")
    found = past(bench, tree)
    assert found[0] == ("nothing",)
    assert sorted(found[1:3]) == [("aside", "side.py"), ("moved", "a.py", "b.py")]
    assert found[3:] == [("first\n\nwith a body", "a.py", "deep/ü\n.py")]
    assert past(bench, tree, limit=1) == [("nothing",)]
    assert past(bench, tree, first) == found[3:]
    assert past(bench, tree.root / "deep", first) == [("first\n\nwith a body", "ü\n.py")]
    (one,) = GitCommitHistory(bench.indexes, version=1).commits(CodePlace(tree.root, first), limit=5)
    assert one.id == first
    assert abs((datetime.now(UTC) - one.at).total_seconds()) < 3600


def test_commit_data_is_read_only_once(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha"})
    tree.commit("first")
    assert past(bench, tree) == [("first", "a.py")]
    with closing(sqlite3.connect(bench.file)) as connection, connection:
        rows = connection.execute("SELECT id FROM past_commit").fetchall()
    assert len(rows) == 1
    tree.write({"a.py": "beta"}).commit("second")
    assert past(bench, tree) == [("second", "a.py"), ("first", "a.py")]
    assert kept(bench) == 2
    # Git can no longer list the first commit's files, and need not.
    tree_of_first = tree.git("rev-parse", "HEAD~1^{tree}")
    (tree.root / ".git/objects" / tree_of_first[:2] / tree_of_first[2:]).unlink()
    assert past(bench, tree) == [("second", "a.py"), ("first", "a.py")]


def test_without_git_or_commits_there_is_no_past(bench: Bench) -> None:
    assert past(bench, bench.directory_tree()) == []
    assert past(bench, bench.repository()) == []
    assert past(bench, bench.directory / "nowhere") == []


def test_a_damaged_or_missing_history_is_read_again(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha"})
    tree.commit("first")
    wanted = past(bench, tree)
    with closing(sqlite3.connect(bench.file)) as connection, connection:
        connection.execute("UPDATE past_commit SET data = substr(data, 2)")
    assert past(bench, tree) == wanted
    assert past(bench, tree) == wanted
    assert kept(bench) == 1
    bench.file.write_bytes(b"nothing")
    assert past(bench, tree) == wanted
    blocked = bench.directory / "blocked"
    blocked.write_text("")
    found = GitCommitHistory(blocked / "indexes", version=1).commits(CodePlace(tree.root), limit=5)
    assert [one.message for one in found] == ["first"]


def test_odd_times_messages_and_names_are_no_trouble(bench: Bench) -> None:
    tree = bench.repository()
    (tree.root / os.fsdecode(b"caf\xe9.py")).write_text("coffee")
    tree.git("add", "--all")
    made = tree.git("write-tree")
    who = "A <a> 99999999999999999 +0000"
    text = f"tree {made}\nauthor {who}\ncommitter {who}\n\nodd \1 \xff"
    path = bench.directory / "commit"
    path.write_bytes(text.encode("latin-1"))
    name = tree.git("hash-object", "-t", "commit", "-w", "--literally", str(path))
    ((message, file),) = past(bench, tree, name)
    assert message.startswith("odd \1")
    assert os.fsencode(file) == b"caf\xe9.py"


def test_no_secret_of_a_message_is_kept_in_the_index(bench: Bench) -> None:
    tree = bench.repository().write({"a.py": "alpha"})
    secret = "ghp_" + "aB3dE6gH9" * 4
    tree.commit(f"rotate the key\n\nit was {secret}, and sent to all\n\n{'x' * 3_950} {secret}")
    ((message, *_),) = past(bench, tree)
    assert message.startswith("rotate the key\n\nit was ")
    assert ", and sent to all" in message
    assert secret[:8] not in message
    # The stored data equals the first result.
    assert past(bench, tree) == [(message, "a.py")]
    for part in bench.indexes.iterdir():
        assert secret[:8].encode() not in part.read_bytes()
