"""The building blocks of sandboxes: copies, paths without links, objects and indexes without git."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from cleveragents.core.errors import GitFailed, SandboxRefused, ToolRefused
from cleveragents.git.git_directory import LooseObjects
from cleveragents.git.index_file import IndexSummary, holds_attributes, summary_of
from cleveragents.git.plumbing import PrivateRepository, RunningGit, user_environment
from cleveragents.git.user_repository import look_at, pin, pinned_in, unpin
from cleveragents.sandboxes.directory_copy import DirectoryCopy
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.storage.files.file_copy import copy_content
from cleveragents.storage.files.paths import delete_file, disk_use, empty, remove_all
from tests.sandbox_resources import fingerprint, git, make_repository, write

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def copied(source: Path, target: Path, *, without: str | None = None) -> list[str]:
    target.mkdir()
    descriptors = [os.open(path, os.O_RDONLY) for path in (source, target)]
    try:
        return copy_content(*descriptors, without=without)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_a_copy_preserves_content_modes_times_and_links(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, {"a": "a\n", "d/e/run": "x", "empty": "", "large": os.urandom(300_000)})
    (source / "d/e/run").chmod(0o755)
    (source / "d/e").chmod(0o500)
    (source / "link").symlink_to("/nowhere")
    (source / "d/link").symlink_to("e")
    os.utime(source / "a", ns=(1, 1_000_000_001))
    assert copied(source, tmp_path / "copy") == []
    assert fingerprint(tmp_path / "copy") == fingerprint(source)
    assert (tmp_path / "copy/a").stat().st_mtime_ns == 1_000_000_001
    assert stat.S_IMODE((tmp_path / "copy/d/e").stat().st_mode) == 0o500


def test_a_sparse_file_stays_sparse(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with (tmp_path / "source/holes").open("wb") as file:
        file.seek(50_000_000)
        file.write(b"data")
        file.truncate(100_000_000)
    with (tmp_path / "source/nothing").open("wb") as file:
        file.truncate(10_000_000)
    copied(tmp_path / "source", tmp_path / "copy")
    copy = tmp_path / "copy/holes"
    assert copy.stat().st_size == 100_000_000
    with copy.open("rb") as file:
        file.seek(50_000_000)
        assert file.read(5) == b"data\0"
    assert (tmp_path / "copy/nothing").stat().st_size == 10_000_000
    assert disk_use(tmp_path / "copy") < 1_000_000


def test_sockets_pipes_and_excluded_names_are_left_out_and_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, {"a": "a", "d/.git/config": "x", "d/b": "b"})
    os.mkfifo(source / "d/pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(source / "socket"))
        left = copied(source, tmp_path / "copy", without=".git")
    assert sorted(left) == ["d/.git", "d/pipe", "socket"]
    assert fingerprint(tmp_path / "copy").keys() == {"a", "d", "d/b"}


def nested(top: Path, levels: int) -> None:
    """Create nested directories with a file in the last, deeper than a path can express."""
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


@pytest.mark.parametrize("levels", [300, 500])
def test_directories_are_copied_however_deep_with_few_open_files(tmp_path: Path, levels: int) -> None:
    (tmp_path / "source").mkdir()
    nested(tmp_path / "source", levels)
    (tmp_path / "source/d/d").chmod(0o500)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
    try:
        assert copied(tmp_path / "source", tmp_path / "copy") == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (tmp_path / "copy" / Path(*["d"] * levels) / "file").is_file()
    assert stat.S_IMODE((tmp_path / "copy/d/d").stat().st_mode) == 0o500


def test_too_deep_directories_are_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    nested(tmp_path / "source", 3_000)
    assert copied(tmp_path / "source", tmp_path / "copy") == ["/".join(["d"] * 502)]
    remove_all(tmp_path / "source")


def test_unreadable_files_are_left_out_and_named(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "copy"
    target.mkdir()
    write(source, {"a": "a", "shut/b": "b", "listed/c": "c", "secret": "s", "d/e": "e"})
    for path, mode in {"shut": 0, "listed": 0o400, "secret": 0}.items():
        (source / path).chmod(mode)
    with ExitStack() as stack:
        descriptors = [os.open(path, os.O_RDONLY) for path in (source, target)]
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        if os.geteuid() == 0:  # not bound by permissions
            for given in (source, target, *source.rglob("*")):
                os.chown(given, 65534, 65534)
            os.seteuid(65534)
            stack.callback(os.seteuid, 0)
        left = copy_content(*descriptors)
    assert sorted(left) == ["listed/c", "secret", "shut"]
    assert fingerprint(target).keys() == {"a", "d", "d/e", "listed"}


def test_a_sandbox_of_a_directory_notes_omitted_files(tmp_path: Path) -> None:
    write(tmp_path / "r", {"a": "a"})
    make_repository(tmp_path / "r" / "project", {"code.py": "1\n"})
    os.mkfifo(tmp_path / "r" / "pipe")
    sandbox = DirectoryCopy().create(SandboxRequest("plan-1", tmp_path / "r"), tmp_path / "sandbox")
    assert sandbox.notes == (
        "nested repositories are copied as plain files, without history: project",
        "sockets, pipes, devices and unreadable files are left out: pipe",
    )
    assert not (sandbox.root / "project/.git").exists()
    write(sandbox.root, {"project/code.py": "2\n"})
    assert set(sandbox.scan()) == {"project/code.py"}


def test_refuses_from_head_and_nested_sandboxes_for_a_directory(tmp_path: Path) -> None:
    write(tmp_path / "r", {"a": "a"})
    with pytest.raises(SandboxRefused, match="no HEAD"):
        DirectoryCopy().create(SandboxRequest("p", tmp_path / "r", from_head=True), tmp_path / "s")
    with pytest.raises(SandboxRefused, match="inside the directory"):
        DirectoryCopy().create(SandboxRequest("p", tmp_path / "r"), tmp_path / "r" / "state" / "p")
    assert not DirectoryCopy().suits(tmp_path / "missing")


def test_emptying_keeps_one_name_and_follows_no_link(tmp_path: Path) -> None:
    write(tmp_path / "outside", {"kept": "x"})
    write(tmp_path / "d", {"lock": "", "file": "", "sub/x": ""})
    (tmp_path / "d/link").symlink_to(tmp_path / "outside")
    (tmp_path / "d/sub/link").symlink_to(tmp_path / "outside")
    empty(tmp_path / "d", but="lock")
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["lock"]
    assert (tmp_path / "outside/kept").exists()
    empty(tmp_path / "missing", but="lock")
    remove_all(tmp_path / "missing")


def test_a_failed_removal_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file is no directory")
    with pytest.raises(OSError, match="Not a directory"):
        remove_all(tmp_path / "file")


def test_disk_use_follows_no_link_and_no_path_without_end(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/large").write_bytes(b"x" * 1_000_000)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(tmp_path / "outside")
    descriptor = os.open(tree, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    assert disk_use(tree) < 100_000
    assert disk_use(tree / "link") == 0
    remove_all(tree)


def test_disk_use_counts_a_file_with_two_names_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(os.urandom(100_000))
    once = disk_use(tmp_path)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert disk_use(tmp_path) == once
    assert once >= 100_000


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
def test_objects_equal_gits_objects(tmp_path: Path, size: int) -> None:
    repository = make_repository(tmp_path / "r", {})
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    objects = LooseObjects(repository / ".git" / "objects", "sha1")
    with (tmp_path / "file").open("rb") as file:
        name = objects.keep_file(file.fileno(), size)
    assert name is not None
    assert git(repository, "hash-object", str(tmp_path / "file")).decode().strip() == name
    assert git(repository, "cat-file", "blob", name) == data
    assert objects.read(name) == data
    assert objects.keep(data) == name
    assert objects.read("0" * 40) is None
    git(repository, "fsck", "--strict")
    assert not list((repository / ".git" / "objects").glob("tmp*"))


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_file_that_changes_during_the_read_is_not_stored(tmp_path: Path, size: int) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "file").write_bytes(b"x" * (size + 1))
    objects = LooseObjects(tmp_path / "objects", "sha1")
    with (tmp_path / "file").open("rb") as file:
        assert objects.keep_file(file.fileno(), size) is None
    assert list((tmp_path / "objects").iterdir()) == []


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_an_index_is_read_as_git_wrote_it(tmp_path: Path, object_format: str) -> None:
    files: dict[str, str | bytes] = {f"{'n' * n}{n}": "x" * n for n in range(1, 40)}
    repository = make_repository(tmp_path / "r", files, f"--object-format={object_format}")
    index = repository / ".git" / "index"
    name_bytes = 20 if object_format == "sha1" else 32
    total = sum(range(1, 40))
    assert summary_of(index, name_bytes=name_bytes) == IndexSummary(39, total, ())
    assert not holds_attributes(index)
    commit = git(repository, "rev-parse", "HEAD").decode().strip()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},späce d/sub")
    write(repository, {"d/.gitattributes": "a", "later": "12345"})
    git(repository, "add", "d")
    git(repository, "add", "-N", "later")  # makes it version 3
    found = summary_of(index, name_bytes=name_bytes)
    assert found.gitlinks == ("späce d/sub",)
    assert holds_attributes(index)
    assert found.files == 42
    assert summary_of(tmp_path / "missing", name_bytes=20).files == 0
    git(repository, "update-index", "--index-version", "4")
    with pytest.raises(GitFailed, match="version 4"):
        summary_of(index, name_bytes=name_bytes)


def test_a_started_git_has_ended_after_its_block(tmp_path: Path) -> None:
    with pytest.raises(KeyError), RunningGit("--version", environment=user_environment()) as running:
        raise KeyError
    assert running._process.returncode == 0
    with pytest.raises(GitFailed, match="git nonsense failed"):
        PrivateRepository(tmp_path).git("--no-pager", "nonsense")
    with pytest.raises(ToolRefused):
        RunningGit("--version", environment={}, directory=tmp_path / "missing")


def test_a_silent_failure_of_git_shows_its_exit_code(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "r", {"a": "a"})
    with pytest.raises(GitFailed, match="exit code 1"):
        PrivateRepository(repository / ".git").git("diff-tree", "--quiet", "HEAD", EMPTY_TREE)


def test_capture_leaves_out_nested_repositories(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    make_repository(resource / "inner", {"b": "b\n"})
    engine = PrivateRepository(resource / ".git")
    tree = engine.capture(resource, tmp_path / "index")
    assert git(resource, "ls-tree", "-r", "--name-only", tree) == b"a\n"
    assert engine.stage(resource, tmp_path / "index") == ("inner",)
    assert [path.name for path in tmp_path.glob("index*")] == ["index"]


def test_circular_alternates_end(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    other = make_repository(tmp_path / "o", {"a": "a\n"})
    write(resource, {".git/objects/info/alternates": f"# a comment\n{other}/.git/objects\n"})
    write(other, {".git/objects/info/alternates": "../../../r/.git/objects\n"})
    stores = look_at(resource).object_stores
    assert stores == (resource / ".git/objects", other / ".git/objects")


def shim(place: Path, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    """Create a `git` whose `add` fails this often, as when a file vanishes, before it works."""
    real = shutil.which("git")
    program = (
        "#!/bin/sh\n"
        f'case "$*" in *" add "*) if [ "$(cat {place}/failures)" -gt 0 ]; then\n'
        f"  echo $(($(cat {place}/failures) - 1)) > {place}/failures\n"
        "  echo \"fatal: unable to stat '4913': No such file or directory\" >&2; exit 128; fi;; esac\n"
        f'exec {real} "$@"\n'
    )
    write(place, {"git": program, "failures": f"{failures}\n"})
    (place / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")


def test_a_vanishing_file_does_not_break_a_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    expected = git(resource, "rev-parse", "HEAD^{tree}").decode().strip()
    shim(tmp_path / "bin", monkeypatch, failures=2)
    engine = PrivateRepository(resource / ".git")
    assert engine.capture(resource, tmp_path / "index") == expected
    write(tmp_path / "bin", {"failures": "100\n"})
    with pytest.raises(GitFailed, match="unable to stat"):
        engine.capture(resource, tmp_path / "index")


def test_a_pin_ignores_other_locks_and_removes_its_stale_lock(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    repository = look_at(resource)
    assert repository.head is not None
    pin(repository, "plan-1", repository.head)
    refs = resource / ".git" / "refs" / "cleveragents" / "base"
    assert (refs / "plan-1").read_text() == f"{repository.head}\n"
    (refs / "plan-2.lock").touch()
    with pytest.raises(GitFailed, match="lock"):
        pin(repository, "plan-2", repository.head)
    unpin(repository.common_dir, "plan-2")
    pin(repository, "plan-2", repository.head)
    assert pinned_in(resource)[1] == {"plan-1": repository.head, "plan-2": repository.head}
    assert not list((resource / ".git").glob("logs/**/plan-*"))
    for plan_id in ("plan-1", "plan-2", "plan-2"):
        unpin(repository.common_dir, plan_id)
    assert pinned_in(resource)[1] == {}


def test_git_writes_a_pin_if_refs_are_not_files(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    repository = replace(look_at(resource), settings={"extensions.refstorage": "other"})
    assert repository.head is not None
    pin(repository, "plan-1", repository.head)
    assert pinned_in(resource)[1] == {"plan-1": repository.head}


def test_removal_opens_read_only_directories_and_follows_no_link(tmp_path: Path) -> None:
    write(tmp_path / "outside", {"x": ""})
    (tmp_path / "outside").chmod(0o755)
    write(tmp_path / "d", {"shut/deep/x": ""})
    (tmp_path / "d/link").symlink_to(tmp_path / "outside")
    (tmp_path / "d/shut/deep").chmod(0)
    (tmp_path / "d/shut").chmod(0)
    remove_all(tmp_path / "d")
    assert not (tmp_path / "d").exists()
    assert (tmp_path / "outside/x").exists()
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o755


def test_deleting_a_file_also_removes_emptied_directories(tmp_path: Path) -> None:
    write(tmp_path, {"a/b/c": "", "a/other": "", "file": ""})
    for path in ("a", "a/b", "missing", "missing/x", "file/x"):
        delete_file(tmp_path, path)
    assert fingerprint(tmp_path).keys() == {"a", "a/b", "a/b/c", "a/other", "file"}
    delete_file(tmp_path, "a/b/c")
    assert fingerprint(tmp_path).keys() == {"a", "a/other", "file"}
