"""The files of a conversation: those that git does not ignore, read-only."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleveragents.conversations.files import RepositoryFiles
from cleveragents.core.errors import OutsideSandbox, ToolRefused


@pytest.fixture
def files(tmp_path: Path) -> RepositoryFiles:
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / "src/a.py").write_text("a\n")
    (tmp_path / "src/deep/b.py").write_text("bb\n")
    (tmp_path / ".env").write_text("secret\n")
    (tmp_path / "link").symlink_to(".env")
    (tmp_path / "way").symlink_to("src")
    return RepositoryFiles(tmp_path, {"src/a.py": 2, "src/deep/b.py": 3, "link": 4, "way/a.py": 2})


def test_reads_listed_files_only(files: RepositoryFiles) -> None:
    assert files.read("src/a.py") == b"a\n"
    assert files.read("./src//a.py") == b"a\n"
    with pytest.raises(ToolRefused):
        files.read(".env")
    assert files.kind(".env") is None


@pytest.mark.parametrize("path", ["link", "way/a.py", "../x", "/etc/passwd", "src/../../x", "a\0b"])
def test_follows_no_link_and_leaves_the_repository_by_no_path(files: RepositoryFiles, path: str) -> None:
    with pytest.raises(OutsideSandbox):
        files.read(path)


def test_walks_the_listed_files(files: RepositoryFiles) -> None:
    assert [(found.path, found.kind) for found in files.walk("src")] == [
        ("src/a.py", "file"),
        ("src/deep", "directory"),
        ("src/deep/b.py", "file"),
    ]
    assert [found.path for found in files.walk(depth=1)] == ["link", "src", "way"]
    assert (files.kind("src"), files.exists("nowhere")) == ("directory", False)
    with pytest.raises(ToolRefused):
        files.walk("src/a.py")


def test_changes_nothing(files: RepositoryFiles) -> None:
    for change in (
        lambda: files.write("src/a.py", b""),
        lambda: files.delete("src/a.py"),
        lambda: files.move("src/a.py", "b"),
    ):
        with pytest.raises(ToolRefused, match="only reads"):
            change()
    assert files.touched() == ()
