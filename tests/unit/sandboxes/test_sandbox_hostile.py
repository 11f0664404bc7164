"""An untrusted repository: nothing in it runs, misleads us or exposes other files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from cleveragents.core.change import GITLINK
from cleveragents.core.errors import SandboxRefused, ToolRefused
from cleveragents.git.git_directory import copy_index, ignores_case
from cleveragents.git.plumbing import user_environment
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.sandboxes.resources import find_resource
from cleveragents.sandboxes.tree.ignored_files import patterns_in
from tests.sandbox_resources import commit_all, git, make_repository, write


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a home without configuration."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return place


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """Create a program that leaves a trace, in a file `ran` beside it."""
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\necho ran >> {tmp_path}/ran\n")
    program.chmod(0o755)
    return program


def make(resource: Path, *, include: tuple[str, ...] = ()) -> Sandbox:
    request = SandboxRequest("plan-1", resource, include=include)
    return PrivateClone().create(request, resource.parent / "sandbox")


@pytest.mark.parametrize("entry", ["", ".", "bin"])
def test_a_git_program_in_a_repository_or_sandbox_never_runs(
    tmp_path: Path, evil: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    program = evil.read_text()
    resource = make_repository(tmp_path / "r", {"a": "a\n", "git": program, "bin/git": program})
    for name in ("git", "bin/git"):
        (resource / name).chmod(0o755)
    commit_all(resource)
    write(resource, {"a": "edited\n"})
    monkeypatch.setenv("PATH", f"{entry}:{os.environ['PATH']}")
    monkeypatch.chdir(resource)
    sandbox = make(resource)
    write(sandbox.root, {"a": "changed\n"})
    assert set(sandbox.scan()) == {"a"}
    assert not (tmp_path / "ran").exists()
    assert entry not in user_environment()["PATH"].split(":"), "nor by a program that git itself starts"


def test_a_path_without_git_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    monkeypatch.setenv("PATH", "relative::")
    with pytest.raises(ToolRefused, match="not in an absolute entry of PATH"):
        make(resource)


@pytest.mark.parametrize("missing", ["HEAD", "HEAD^{tree}", "HEAD:a"])
def test_a_missing_object_is_not_fetched_by_the_repositorys_program(
    tmp_path: Path, evil: Path, missing: str
) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    name = git(resource, "rev-parse", missing).decode().strip()
    git(resource, "config", "core.repositoryFormatVersion", "1")
    git(resource, "config", "extensions.partialClone", "origin")
    for key, value in {"promisor": "true", "url": str(tmp_path / "r"), "uploadpack": str(evil)}.items():
        git(resource, "config", f"remote.origin.{key}", value)
    (resource / ".git" / "objects" / name[:2] / name[2:]).unlink()
    with contextlib.suppress(SandboxRefused):
        make(resource)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shape", ["plain", "split", "version 4"])
def test_a_submodules_own_filter_does_not_run_and_its_commit_is_taken(
    tmp_path: Path, evil: Path, shape: str
) -> None:
    library = make_repository(tmp_path / "library", {"code.py": "1\n"})
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    for path in ("sub", "dirty", "gone", "deps/linked"):
        git(resource, "submodule", "--quiet", "add", str(library), path)
    commit_all(resource)
    write(resource / "sub", {"code.py": "2\n"})
    commit = commit_all(resource / "sub")
    for path in ("sub", "dirty"):
        git(resource / path, "config", "filter.x.clean", str(evil))
        write(resource, {f".git/modules/{path}/info/attributes": "* filter=x\n"})
        write(resource, {f"{path}/code.py": "4\n"})
    write(resource, {"a": "edited\n"})
    if shape == "split":
        git(resource, "update-index", "--split-index")
    elif shape == "version 4":
        git(resource, "update-index", "--index-version", "4")
    (resource / "gone").rename(tmp_path / "moved")
    (resource / "deps").rename(tmp_path / "deps")
    (resource / "deps").symlink_to(tmp_path / "deps")
    sandbox = make(resource)
    states = sandbox.base_states(["sub", "gone", "deps/linked", "deps", "a"])
    assert not (tmp_path / "ran").exists()
    sub = states["sub"]
    assert sub is not None
    assert (sub.mode, sub.content) == (GITLINK, commit)
    assert states["gone"] is states["deps/linked"] is None
    assert states["deps"] is not None
    index = tmp_path / "index"
    copy_index(resource / ".git" / "index", index)
    assert sandbox.repository.capture(resource, index) == sandbox.base
    assert not (tmp_path / "ran").exists(), "nor when the result is applied"


@pytest.mark.parametrize(
    "name",
    [
        "warning: adding embedded git repository: x",
        "x' does not have a commit checked out",
        "a: No such file or directory",
    ],
)
def test_a_file_named_like_a_git_message_is_a_file(tmp_path: Path, name: str) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n", ".gitattributes": "* text=auto eol=crlf\n"})
    sandbox = make(resource)
    write(sandbox.root, {name: "lf\n"})
    assert set(sandbox.scan()) == {name}
    (sandbox.root / name).unlink()
    write(sandbox.root, {f"{name}/.GIT/x": "cannot be recorded\n"})
    with pytest.raises(SandboxRefused, match="invalid path"):
        sandbox.scan()


@pytest.mark.parametrize("inside", ["", "below"])
def test_refuses_a_repository_with_a_foreign_worktree(tmp_path: Path, inside: str) -> None:
    victim = make_repository(tmp_path / "victim", {"private": "x\n"})
    resource = make_repository(tmp_path / "r", {"below/a": "a\n"})
    for elsewhere in (victim, tmp_path, resource / "below"):
        git(resource, "config", "core.worktree", str(elsewhere))
        with pytest.raises(SandboxRefused):
            find_resource(resource / inside)
    git(resource, "config", "--unset", "core.worktree")
    assert find_resource(resource / inside) == (resource, inside)
    git(resource, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert find_resource(tmp_path / "linked" / inside) == (tmp_path / "linked", inside)


def test_refuses_an_invalid_git_directory_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "below").mkdir()
    with pytest.raises(SandboxRefused, match=r"the \.git directory is not a valid repository; remove"):
        find_resource(tmp_path)
    assert find_resource(tmp_path / "below") == (tmp_path / "below", "")


def test_settings_of_another_filesystem_hide_no_change(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a.txt": "a\n", "b.txt": "b\n", "run": "x\n", "link": "l\n"})
    git(resource, "config", "core.fileMode", "true")
    for name in ("ignorecase", "precomposeunicode"):
        git(resource, "config", f"core.{name}", "true")
    for name in ("filemode", "symlinks"):
        git(resource, "config", f"core.{name}", "false")
    write(resource, {"A.TXT": "untracked\n"})
    sandbox = make(resource)
    assert (sandbox.root / "A.TXT").read_text() == "untracked\n"
    (sandbox.root / "a.txt").rename(sandbox.root / "A.txt")
    write(sandbox.root, {"B.TXT": "q\n"})
    (sandbox.root / "run").chmod(0o755)
    (sandbox.root / "link").unlink()
    (sandbox.root / "link").symlink_to("a.txt")
    found = sandbox.scan()
    assert set(found) == {"a.txt", "A.txt", "B.TXT", "run", "link"}
    assert {path: sandbox.state_of(path) for path in found} == {p: step.after for p, step in found.items()}
    assert git(sandbox.root, "config", "core.ignorecase") == b"false\n"


def test_outside_targets_of_a_repository_are_hidden_from_commands(tmp_path: Path, home: Path) -> None:
    write(home, {".ssh/id_rsa": "PRIVATE\n", "my-excludes": "*.mine\n"})
    git(home, "config", "--global", "core.excludesFile", "~/my-excludes", home=home)
    key = home / ".ssh" / "id_rsa"
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    git(resource, "config", "core.excludesFile", str(key))
    git(resource, "config", "core.attributesFile", str(key))
    for name in ("exclude", "attributes"):
        (resource / ".git/info" / name).unlink(missing_ok=True)
        (resource / ".git/info" / name).symlink_to(key)
    passwords = make_repository(home / ".password-store", {"bank": "encrypted\n"}) / ".git/objects"
    write(resource, {".git/objects/info/alternates": f"{key.parent}\n{passwords}\n"})
    sandbox = make(resource)
    shown = [path for path in (sandbox.root / ".git").rglob("*") if path.is_file()]
    assert not [path for path in shown if b"PRIVATE" in path.read_bytes()]
    assert b"*.mine" in (sandbox.root / ".git/info/exclude").read_bytes()
    assert set(sandbox.readable) == {resource / ".git/objects", tmp_path / "sandbox/engine/objects"}


def test_refuses_an_object_store_with_other_files(tmp_path: Path, home: Path) -> None:
    write(home, {".ssh/id_rsa": "PRIVATE\n"})
    resource = make_repository(tmp_path / "r", {})
    (resource / ".git/objects").rename(tmp_path / "objects")
    (resource / ".git/objects").symlink_to(home / ".ssh")
    with pytest.raises(SandboxRefused, match="other files than git objects"):
        make(resource)


def test_ignored_files_named_only_by_the_repository_are_not_copied(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {".gitignore": ".env\n", ".worktreeinclude": ".env\n"})
    write(resource, {".env": "DB=secret\n"})
    assert not (make(resource).root / ".env").exists()
    PrivateClone().remove("plan-1", resource, tmp_path / "sandbox")
    assert (
        make(resource, include=patterns_in((resource / ".worktreeinclude").read_bytes())).root / ".env"
    ).exists()


def test_a_name_without_letters_does_not_reveal_case_sensitivity(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    assert not ignores_case(tmp_path / "12")
    write(tmp_path, {"both/x": "", "BOTH/x": ""})
    assert not ignores_case(tmp_path / "both"), "two directories are not one under two names"


def test_a_line_break_in_a_repositorys_name_is_reported(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "two\nlines", {"a": "a\n"})
    with pytest.raises(SandboxRefused, match="line break"):
        find_resource(resource)
