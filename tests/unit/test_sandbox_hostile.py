"""A repository that is somebody else's: nothing that it brings along runs, misleads us or shows us around."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cleveragents.application.ports.sandboxes import SandboxRequest
from cleveragents.domain.file_state import GITLINK
from cleveragents.errors import SandboxRefused, ToolRefused
from cleveragents.infrastructure.git.git_directory import copy_index
from cleveragents.infrastructure.git.plumbing import user_environment
from cleveragents.infrastructure.sandbox.git_sandbox import GitSandbox
from cleveragents.infrastructure.sandbox.private_clone import PrivateClone
from tests.sandbox_resources import commit_all, git, make_repository, write


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with no configuration but what a test puts there."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return place


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A program that leaves a trace, in a file beside it that is called `ran`."""
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\necho ran >> {tmp_path}/ran\ncat\n")
    program.chmod(0o755)
    return program


def make(resource: Path, *, include: tuple[str, ...] = ()) -> GitSandbox:
    request = SandboxRequest("plan-1", resource, include=include)
    return PrivateClone().create(request, resource.parent / "sandbox")


@pytest.mark.parametrize("entry", ["", ".", "bin"])
def test_a_program_called_git_in_a_repository_or_a_sandbox_is_not_run_whatever_path_says(
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


def test_a_path_without_git_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    monkeypatch.setenv("PATH", "relative::")
    with pytest.raises(ToolRefused, match="no absolute entry of PATH"):
        make(resource)


def test_a_missing_object_is_not_fetched_by_a_program_that_the_repository_names(
    tmp_path: Path, evil: Path
) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    name = git(resource, "rev-parse", "HEAD:a").decode().strip()
    git(resource, "config", "core.repositoryFormatVersion", "1")
    git(resource, "config", "extensions.partialClone", "origin")
    for key, value in {"promisor": "true", "url": str(tmp_path / "r"), "uploadpack": str(evil)}.items():
        git(resource, "config", f"remote.origin.{key}", value)
    (resource / ".git" / "objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(SandboxRefused, match="partial clone"):
        make(resource)
    git(resource, "config", "--unset", "remote.origin.promisor")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shape", ["plain", "split", "version 4"])
def test_a_submodules_own_filter_does_not_run_and_its_commit_is_taken(
    tmp_path: Path, evil: Path, shape: str
) -> None:
    library = make_repository(tmp_path / "library", {"code.py": "1\n"})
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    for path in ("sub", "gone", "deps/linked"):
        git(resource, "submodule", "--quiet", "add", str(library), path)
    commit_all(resource)
    write(resource / "sub", {"code.py": "2\n"})
    commit = commit_all(resource / "sub")
    git(resource / "sub", "config", "filter.x.clean", str(evil))
    write(resource, {".git/modules/sub/info/attributes": "* filter=x\n"})
    write(resource, {"sub/code.py": "3\n", "a": "edited\n"})
    if shape == "split":
        git(resource, "update-index", "--split-index")
    elif shape == "version 4":
        git(resource, "update-index", "--index-version", "4")
    git(resource / "gone", "rev-parse", "HEAD")
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
def test_a_file_that_is_called_like_words_of_gits_is_a_file(tmp_path: Path, name: str) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n", ".gitattributes": "* text=auto eol=crlf\n"})
    sandbox = make(resource)
    write(sandbox.root, {name: "lf\n"})
    assert set(sandbox.scan()) == {name}
    (sandbox.root / name).unlink()
    write(sandbox.root, {f"{name}/.GIT/x": "cannot be recorded\n"})
    with pytest.raises(SandboxRefused, match="invalid path"):
        sandbox.scan()
