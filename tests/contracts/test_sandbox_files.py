"""The contract of `SandboxFiles`, tested on `ConfinedFiles` with real files."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleveragents.core.errors import OutsideSandbox, StoreFull, ToolRefused
from cleveragents.tools.files import confined_files
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.files.descent import is_git_name, parts_of
from cleveragents.tools.ports import SandboxFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a sandbox, and a secret beside it."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("secret")
    root = tmp_path / "sandbox"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "a.py").write_text("a")
    (root / "src" / "deep" / "b.py").write_text("b")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("[core]")
    return root


@pytest.fixture
def files(root: Path) -> SandboxFiles:
    return ConfinedFiles(root)


@pytest.fixture(autouse=True)
def nothing_outside_is_touched(tmp_path: Path, root: Path) -> Iterator[None]:
    yield
    assert (tmp_path / "secret").read_text() == "secret"
    outside = {path.name: path.read_text() for path in (tmp_path / "outside").iterdir()}
    assert outside == {"file": "secret"}
    assert (root / ".git" / "config").read_text() == "[core]"
    assert list(root.rglob(f"{confined_files.TEMPORARY_PREFIX}*")) == []


OUTSIDE = [
    "../secret",
    "src/../../secret",
    "src/../src/a.py",
    "/etc/passwd",
    "//etc/passwd",
    "..",
    "src\\..\\..\\secret",
    "..\\secret",
    "a\0b",
    "",
    ".",
    "./",
    ".git/config",
    ".GIT/config",
    ".Git",
    "src/.git/hooks/post-commit",
    ".git /config",
    ".git.",
    ".git::$INDEX_ALLOCATION/config",
    "GIT~1/config",
    ".g\u200cit/config",
    "src\\.git\\config",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_every_operation_refuses_an_outside_path(files: SandboxFiles, path: str) -> None:
    for attempt in (
        lambda: files.read(path),
        lambda: files.write(path, b"x"),
        lambda: files.delete(path),
        lambda: files.move(path, "new"),
        lambda: files.move("src/a.py", path),
    ):
        with pytest.raises(OutsideSandbox) as refused:
            attempt()
        assert "sandbox" in str(refused.value)
    assert files.touched() == ()


@pytest.mark.parametrize("path", [path for path in OUTSIDE if path not in ("", ".", "./")])
def test_refuses_to_look_outside(files: SandboxFiles, path: str) -> None:
    with pytest.raises(OutsideSandbox):
        files.exists(path)
    with pytest.raises(OutsideSandbox):
        files.walk(path)


LINKS = [
    ("../secret", "link"),
    ("../outside", "link/file"),
    ("{outside}", "link/file"),
    ("/proc/self/root/etc", "link/passwd"),
    ("/proc/self/cwd", "link/x"),
    ("src/../../secret", "link"),
    ("src/deep/../../../outside", "link/file"),
    (".git", "link/config"),
    (".git/config", "link"),
    ("src/../.GIT/config", "link"),
]


@pytest.mark.parametrize(("target", "path"), LINKS)
def test_a_link_that_leads_out_is_not_followed(
    root: Path, files: SandboxFiles, target: str, path: str
) -> None:
    (root / "link").symlink_to(target.format(outside=root.parent / "outside"))
    with pytest.raises(OutsideSandbox):
        files.read(path)
    with pytest.raises((OutsideSandbox, ToolRefused)):
        files.write(path, b"x")
    if "/" in path:
        with pytest.raises((OutsideSandbox, ToolRefused)):
            files.delete(path)
        with pytest.raises((OutsideSandbox, ToolRefused)):
            files.move("src/a.py", path + "2")
        with pytest.raises(OutsideSandbox):
            files.walk("link")


def test_reads_follow_links_that_stay_inside(root: Path, files: SandboxFiles) -> None:
    (root / "to_file").symlink_to("src/a.py")
    (root / "to_directory").symlink_to("src/deep/..")
    (root / "src" / "up").symlink_to("../src/deep")
    (root / "to_link").symlink_to("to_directory/up")
    (root / "to_root").symlink_to("src/..")
    assert files.read("to_file") == b"a"
    assert files.read("to_directory/a.py") == b"a"
    assert files.read("to_link/b.py") == b"b"
    assert files.read("to_root/src/a.py") == b"a"
    assert [found.path for found in files.walk("to_link")] == ["to_link/b.py"]
    assert files.kind("to_root") == "symlink"


def test_changes_must_use_the_files_own_path(root: Path, files: SandboxFiles) -> None:
    """A change is recorded under its path, and git has no file below a link."""
    (root / "link").symlink_to("src/deep")
    (root / "to_file").symlink_to("src/a.py")
    (root / "nowhere").symlink_to("gone")
    for attempt in (
        lambda: files.write("link/b.py", b"x"),
        lambda: files.write("link/new.py", b"x"),
        lambda: files.delete("link/b.py"),
        lambda: files.move("src/a.py", "link/c.py"),
    ):
        with pytest.raises(ToolRefused, match="src/deep"):
            attempt()
    with pytest.raises(ToolRefused, match=r"'src/a\.py'"):
        files.write("to_file", b"x")
    with pytest.raises(ToolRefused, match="broken symbolic link"):
        files.write("nowhere/x", b"x")
    assert (root / "src" / "a.py").read_text() == "a"
    assert files.touched() == ()


def test_refuses_circular_links(root: Path, files: SandboxFiles) -> None:
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    with pytest.raises(ToolRefused, match="more than 40 links"):
        files.read("one")


def test_deletes_and_moves_a_link_itself(root: Path, files: SandboxFiles) -> None:
    (root / "one").symlink_to("../secret")
    (root / "two").symlink_to("../outside")
    files.move("one", "src/one")
    files.delete("two")
    assert (root / "src" / "one").readlink() == Path("../secret")
    assert not (root / "two").is_symlink()
    assert files.touched() == ("one", "src/one", "two")


def test_refuses_pipes_and_devices_at_once(root: Path, files: SandboxFiles) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(root)
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
    for name in ("pipe", "socket"):
        assert files.kind(name) == "other"
        with pytest.raises(ToolRefused, match="not a regular file"):
            files.read(name)
        with pytest.raises(ToolRefused, match="not a regular file"):
            files.write(name, b"x")
        files.delete(name)
        assert not files.exists(name)


def test_refuses_too_long_and_invalid_unicode_names(root: Path, files: SandboxFiles) -> None:
    with pytest.raises(ToolRefused, match="256 bytes"):
        files.write("x" * 256, b"")
    with pytest.raises(ToolRefused, match="256 bytes"):
        files.read("é" * 128)
    with pytest.raises(ToolRefused, match="the path has"):
        files.exists("x/" * 2049)
    with pytest.raises(ToolRefused, match="not valid Unicode"):
        files.read("\udcff")
    files.write("x" * 255, b"1")
    assert files.read("x" * 255) == b"1"


def test_refuses_a_backslash_only_in_new_names(root: Path, files: SandboxFiles) -> None:
    (root / "a\\b").write_text("1")
    assert files.read("a\\b") == b"1"
    files.write("a\\b", b"2")
    for attempt in (
        lambda: files.write("src\\new.py", b""),
        lambda: files.write("src\\new\\x.py", b""),
        lambda: files.move("a\\b", "c\\d"),
    ):
        with pytest.raises(OutsideSandbox, match="backslash"):
            attempt()
    files.delete("a\\b")


def test_creates_a_file_with_its_directories(root: Path, files: SandboxFiles) -> None:
    files.write("./new//deeper/file.txt", "ü".encode())
    assert (root / "new" / "deeper" / "file.txt").read_text(encoding="utf-8") == "ü"
    assert files.touched() == ("new/deeper/file.txt",)
    assert files.kind("new/deeper") == "directory"
    assert files.kind("new/deeper/file.txt/below") is None
    assert files.kind("") == "directory"


@pytest.mark.parametrize(
    ("mode", "executable", "expected"),
    [
        (0o644, None, 0o644),
        (0o755, None, 0o755),
        (0o640, True, 0o750),
        (0o755, False, 0o644),
        (0o4755, None, 0o755),
    ],
)
def test_a_write_keeps_the_mode_by_default(
    root: Path, files: SandboxFiles, mode: int, executable: bool | None, expected: int
) -> None:
    (root / "src" / "a.py").chmod(mode)
    files.write("src/a.py", b"new", executable=executable)
    assert stat.S_IMODE((root / "src" / "a.py").stat().st_mode) == expected


def test_a_new_file_can_be_executable_and_obeys_the_umask(root: Path, files: SandboxFiles) -> None:
    before = os.umask(0o027)
    try:
        files.write("run.sh", b"", executable=True)
        files.write("plain", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o750
    assert stat.S_IMODE((root / "plain").stat().st_mode) == 0o640


def test_a_hard_link_keeps_its_content(tmp_path: Path, root: Path, files: SandboxFiles) -> None:
    """A hard link may lead out of the sandbox; a shared file is replaced, not modified."""
    os.link(tmp_path / "secret", root / "shared")
    files.write("shared", b"mine")
    assert files.read("shared") == b"mine"
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_failed_write_leaves_only_the_old_file(
    root: Path, files: SandboxFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write("src/a.py", b"new")
    with pytest.raises(KeyboardInterrupt):
        files.write("fresh/deep/c.py", b"new")
    assert sorted(path.name for path in root.rglob("*") if ".git" not in path.parts) == [
        "a.py",
        "b.py",
        "deep",
        "src",
    ]
    assert (root / "src" / "a.py").read_text() == "a"


def test_a_full_disk_is_reported(files: SandboxFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(StoreFull):
        files.write("src/a.py", b"new")


def test_missing_files_and_directories_are_reported(files: SandboxFiles) -> None:
    for attempt in (
        lambda: files.read("src/b.py"),
        lambda: files.delete("src/b.py"),
        lambda: files.move("src/b.py", "c.py"),
    ):
        with pytest.raises(ToolRefused, match=r"'src/b.py' does not exist; did you mean 'src/a.py'\?"):
            attempt()
    for attempt in (
        lambda: files.read("nowhere/at/all"),
        lambda: files.delete("nowhere/at/all"),
        lambda: files.move("nowhere/at/all", "c"),
        lambda: files.walk("nowhere/at/all"),
    ):
        with pytest.raises(ToolRefused, match=r"does not exist$"):
            attempt()


def test_files_and_directories_are_distinguished(root: Path, files: SandboxFiles) -> None:
    for attempt in (lambda: files.read("src"), lambda: files.write("src", b"")):
        with pytest.raises(ToolRefused, match="is a directory"):
            attempt()
    for attempt in (lambda: files.write("src/a.py/x", b""), lambda: files.walk("src/a.py")):
        with pytest.raises(ToolRefused, match="is not a directory"):
            attempt()
    with pytest.raises(ToolRefused, match="does not exist"):
        files.read("src/a.py/x")


def test_refuses_a_too_large_file(root: Path, files: SandboxFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.read("src/a.py", limit_bytes=1) == b"a"
    with pytest.raises(ToolRefused, match="larger than 0 bytes"):
        files.read("src/a.py", limit_bytes=0)
    monkeypatch.setattr(confined_files, "FILE_LIMIT_BYTES", 3)
    with pytest.raises(ToolRefused, match="the content has 4 bytes"):
        files.write("src/a.py", b"1234")
    assert files.read("src/a.py") == b"a"


def test_refuses_an_unreadable_file_with_the_reason(
    files: SandboxFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suite may run as root, who may read everything, so the system's error is simulated."""
    opened = os.open

    def forbidden(path: str, flags: int, *rest: int, dir_fd: int | None = None) -> int:
        if path == "a.py":
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *rest, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(ToolRefused, match="Permission denied"):
        files.read("src/a.py")


def test_deletes_a_directory_with_its_content(root: Path) -> None:
    noted: list[str] = []
    files = ConfinedFiles(root, before_change=lambda path: noted.append(f"{path} {(root / path).exists()}"))
    (root / "src" / "link").symlink_to("../../outside")
    (root / "src" / "empty").mkdir()
    files.delete("src")
    assert not (root / "src").exists()
    assert noted == ["src/a.py True", "src/deep/b.py True", "src/link True"]
    assert files.touched() == ("src/a.py", "src/deep/b.py", "src/link")


def test_moves_a_directory_with_its_content(root: Path) -> None:
    noted: list[str] = []
    files = ConfinedFiles(root, before_change=noted.append)
    files.move("src", "lib/python/src")
    assert (root / "lib" / "python" / "src" / "deep" / "b.py").read_text() == "b"
    assert not (root / "src").exists()
    assert noted == ["src/a.py", "lib/python/src/a.py", "src/deep/b.py", "lib/python/src/deep/b.py"]


@pytest.mark.parametrize("operation", ["delete", "move"])
def test_a_directory_with_a_repository_stays_intact(root: Path, files: SandboxFiles, operation: str) -> None:
    (root / "src" / "deep" / ".git").mkdir()
    with pytest.raises(OutsideSandbox, match="git directory"):
        files.delete("src") if operation == "delete" else files.move("src", "lib")
    assert (root / "src" / "a.py").exists()
    assert files.touched() == ()


def test_a_directory_with_an_invalid_unicode_name_is_not_half_deleted(
    root: Path, files: SandboxFiles
) -> None:
    (root / "src" / "\udcff").mkdir()
    (root / "src" / "\udcff" / "x").touch()
    with pytest.raises(ToolRefused, match="not valid Unicode"):
        files.delete("src")
    assert files.read("src/a.py") == b"a"
    assert "src/\udcff" in [found.path for found in files.walk()]


def test_refuses_to_move_onto_a_file_or_into_itself(root: Path, files: SandboxFiles) -> None:
    for source, target in [("src/a.py", "src/deep/b.py"), ("src/a.py", "src/deep"), ("src/deep", "src/a.py")]:
        with pytest.raises(ToolRefused, match="already exists"):
            files.move(source, target)
    for target in ("src", "src/deep/src"):
        with pytest.raises(ToolRefused, match="itself"):
            files.move("src", target)
    with pytest.raises(ToolRefused, match="is not a directory"):
        files.move("src/deep", "src/a.py/x")
    assert files.touched() == ()


def test_the_callback_runs_once_per_path_before_the_change(root: Path) -> None:
    seen: list[tuple[str, str | None]] = []

    def note(path: str) -> None:
        file = root / path
        seen.append((path, file.read_text() if file.exists() else None))

    files = ConfinedFiles(root, before_change=note)
    files.write("src/a.py", b"1")
    files.write("new", b"2")
    files.write("src/a.py", b"3")
    files.delete("new")
    files.move("src/a.py", "new")
    assert seen == [("src/a.py", "a"), ("new", None)]


def test_a_failing_callback_prevents_the_change(root: Path) -> None:
    def fails(path: str) -> None:
        raise StoreFull(path)

    files = ConfinedFiles(root, before_change=fails)
    for attempt in (
        lambda: files.write("src/a.py", b"1"),
        lambda: files.write("fresh/x", b"1"),
        lambda: files.delete("src"),
        lambda: files.move("src", "lib/src"),
    ):
        with pytest.raises(StoreFull):
            attempt()
    assert files.touched() == ()
    assert files.read("src/a.py") == b"a"
    assert not files.exists("fresh")
    assert not files.exists("lib")


def test_walk_is_sorted_and_skips_links_and_git_directories(root: Path, files: SandboxFiles) -> None:
    (root / "src" / "link").symlink_to("..")
    (root / "src" / "deep" / ".git").write_text("gitdir: elsewhere")
    (root / "src-x").mkdir()
    assert [(found.path, found.kind, found.size) for found in files.walk() if found.kind != "directory"] == [
        ("src/a.py", "file", 1),
        ("src/deep/b.py", "file", 1),
        ("src/link", "symlink", 2),
    ]
    assert [found.path for found in files.walk()] == [
        "src",
        "src/a.py",
        "src/deep",
        "src/deep/b.py",
        "src/link",
        "src-x",
    ]
    assert [found.path for found in files.walk("src", depth=1)] == ["src/a.py", "src/deep", "src/link"]
    assert [found.path for found in files.walk("src/", depth=2)][2] == "src/deep/b.py"


def test_files_that_vanish_during_a_walk_are_skipped(root: Path, files: SandboxFiles) -> None:
    walk = files.walk()
    assert next(walk).path == "src"
    (root / "src").rename(root / "elsewhere")
    assert list(walk) == []


def test_a_directory_swapped_for_a_link_during_a_walk_is_skipped(root: Path, files: SandboxFiles) -> None:
    walk = files.walk()
    assert next(walk).path == "src"
    (root / "src").rename(root / "elsewhere")
    (root / "src").symlink_to("../outside")
    assert list(walk) == []


def test_refuses_to_delete_a_too_deep_tree(root: Path, files: SandboxFiles) -> None:
    deep = root / "src"
    for _ in range(140):
        deep = deep / "d"
        deep.mkdir()
    with pytest.raises(ToolRefused, match="nested deeper"):
        files.delete("src")
    assert files.read("src/a.py") == b"a"
    assert max(found.path.count("/") for found in files.walk()) < 140


def test_refuses_a_replaced_root(tmp_path: Path, root: Path, files: SandboxFiles) -> None:
    root.rename(tmp_path / "moved")
    (tmp_path / "sandbox").symlink_to("outside")
    with pytest.raises(ToolRefused):
        files.read("file")
    (tmp_path / "sandbox").unlink()
    (tmp_path / "other").mkdir()
    (tmp_path / "other").rename(tmp_path / "sandbox")
    with pytest.raises(OutsideSandbox, match="replaced"):
        files.write("file", b"x")
    (tmp_path / "sandbox").rmdir()
    (tmp_path / "moved").rename(tmp_path / "sandbox")
    assert files.read("src/a.py") == b"a"


def test_refuses_a_missing_root(tmp_path: Path) -> None:
    with pytest.raises(ToolRefused, match="No such file"):
        ConfinedFiles(tmp_path / "gone")


@given(st.text(alphabet="ab./\\~ \0git\u200c:", max_size=12))
def test_no_path_text_reaches_outside(path: str) -> None:
    try:
        parts = parts_of(path)
    except (OutsideSandbox, ToolRefused):
        return
    assert ".." not in parts
    assert not os.path.normpath("/".join(parts) or ".").startswith(("/", "../"))
    assert not any(is_git_name(name) for name in parts)


def test_ordinary_names_that_look_like_git_are_ordinary() -> None:
    for name in (".gitignore", ".gitattributes", "git", "agit", ".github", "x.git", "git~2"):
        assert not is_git_name(name), name
