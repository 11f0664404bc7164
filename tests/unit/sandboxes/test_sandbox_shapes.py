"""Repositories of every shape: each gets a correct sandbox, or is refused with a reason."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cleveragents.core.change import EXECUTABLE, GITLINK, REGULAR
from cleveragents.core.errors import GitFailed, SandboxRefused, ToolRefused
from cleveragents.git.user_repository import look_at
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.sandboxes.resources import find_resource
from cleveragents.sandboxes.tree.ignored_files import patterns_in
from tests.sandbox_resources import commit_all, fingerprint, git, make_repository, write

Make = Callable[..., Sandbox]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a home without configuration."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return place


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that creates a sandbox of a repository."""

    def made(
        resource: Path, *, from_head: bool = False, include: tuple[str, ...] = (), remote: str | None = None
    ) -> Sandbox:
        request = SandboxRequest("plan-1", resource, from_head, include, remote=remote)
        return PrivateClone().create(request, tmp_path / "sandbox")

    return made


def files_of(root: Path) -> set[str]:
    found = fingerprint(root, but=(".git/",))
    return {path for path, kind in found.items() if kind != "directory"}


def test_from_head_leaves_out_uncommitted_changes(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a": "committed\n", "b": "b\n"})
    write(resource, {"a": "edited\n", "new": "untracked\n"})
    (resource / "b").unlink()
    sandbox = make(resource, from_head=True)
    assert (sandbox.root / "a").read_text() == "committed\n"
    assert files_of(sandbox.root) == {"a", "b"}
    assert sandbox.base == git(resource, "rev-parse", "HEAD^{tree}").decode().strip()
    assert sandbox.scan() == {}


@pytest.mark.parametrize("from_head", [False, True])
def test_an_empty_repository(tmp_path: Path, make: Make, from_head: bool) -> None:
    sandbox = make(make_repository(tmp_path / "r", {}), from_head=from_head)
    assert files_of(sandbox.root) == set()
    write(sandbox.root, {"first": "x\n"})
    found = sandbox.scan()
    assert set(found) == {"first"}
    assert b"+x" in sandbox.diff(sandbox.tree({"first": found["first"].after}))
    assert git(sandbox.root, "symbolic-ref", "HEAD") == b"refs/heads/main\n"
    assert git(tmp_path / "r", "for-each-ref") == b"", "nothing to pin"


def test_a_branch_without_a_commit_whose_files_are_staged(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {})
    write(resource, {"staged": "staged\n", "untracked": "u\n"})
    git(resource, "add", "staged")
    sandbox = make(resource)
    assert files_of(sandbox.root) == {"staged", "untracked"}
    git(resource, "rm", "-q", "--cached", "staged")
    git(resource, "gc", "-q", "--prune=now")
    (sandbox.root / "staged").unlink()
    sandbox.restore(sandbox.base_states(["staged"]))
    assert (sandbox.root / "staged").read_text() == "staged\n"


def test_an_orphan_branch(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    git(resource, "switch", "-q", "--orphan", "fresh")
    write(resource, {"b": "b\n"})
    sandbox = make(resource)
    assert files_of(sandbox.root) == {"b"}
    assert git(sandbox.root, "symbolic-ref", "HEAD") == b"refs/heads/fresh\n"


def test_a_detached_head(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    git(resource, "checkout", "-q", "--detach")
    sandbox = make(resource)
    assert git(sandbox.root, "rev-parse", "HEAD") == git(resource, "rev-parse", "HEAD")
    assert git(sandbox.root, "branch", "--show-current") == b""
    assert git(sandbox.root, "status", "--porcelain") == b""


def test_the_sandbox_has_the_users_branch_and_history(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    git(resource, "config", "user.name", 'A "quoted" \\ name')
    git(resource, "switch", "-q", "-c", "feature/x")
    write(resource, {"a": "b\n"})
    commit_all(resource)
    write(resource, {"a": "uncommitted\n"})
    sandbox = make(resource)
    assert git(sandbox.root, "log", "--format=%H") == git(resource, "log", "--format=%H")
    assert git(sandbox.root, "branch", "--show-current") == b"feature/x\n"
    assert git(sandbox.root, "config", "user.name") == b'A "quoted" \\ name\n'
    # Uncommitted changes of the user are staged, so that `git diff` shows only the agent's.
    assert git(sandbox.root, "diff", "--name-only") == b""
    assert git(sandbox.root, "diff", "--cached", "--name-only") == b"a\n"


def test_a_linked_worktree(tmp_path: Path, make: Make) -> None:
    main = make_repository(tmp_path / "r", {"a": "a\n"})
    git(main, "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    linked = tmp_path / "linked"
    write(linked, {"a": "edited there\n", "staged": "s\n"})
    git(linked, "add", "staged")
    sandbox = make(linked)
    assert (sandbox.root / "a").read_text() == "edited there\n"
    assert files_of(sandbox.root) == {"a", "staged"}
    assert git(sandbox.root, "branch", "--show-current") == b"side\n"
    assert b"refs/cleveragents/base/plan-1" in git(main, "for-each-ref")
    PrivateClone().remove("plan-1", linked, tmp_path / "sandbox")
    assert b"cleveragents" not in git(main, "for-each-ref")


def test_a_shallow_clone(tmp_path: Path, make: Make) -> None:
    origin = make_repository(tmp_path / "r", {"a": "1\n"})
    write(origin, {"a": "2\n"})
    commit_all(origin)
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin}", "shallow")
    sandbox = make(tmp_path / "shallow")
    assert git(sandbox.root, "rev-list", "--count", "HEAD") == b"1\n"
    write(sandbox.root, {"a": "3\n"})
    assert set(sandbox.scan()) == {"a"}


def test_a_clone_that_borrows_objects_itself(tmp_path: Path, make: Make) -> None:
    origin = make_repository(tmp_path / "r", {"a": "1\n"})
    git(tmp_path, "clone", "-q", "--shared", str(origin), "borrower")
    sandbox = make(tmp_path / "borrower")
    assert origin / ".git" / "objects" in sandbox.readable
    assert git(sandbox.root, "log", "--format=%s") == b"a commit\n"


def test_refuses_a_partial_clone_only_if_objects_are_missing(tmp_path: Path, make: Make) -> None:
    origin = make_repository(tmp_path / "r", {"a": "1\n"})
    git(origin, "config", "uploadpack.allowFilter", "true")
    clone = ("clone", "-q", "--filter=blob:none")
    git(tmp_path, *clone, f"file://{origin}", "full")
    assert files_of(make(tmp_path / "full").root) == {"a"}
    git(tmp_path, *clone, "--no-checkout", f"file://{origin}", "lacking")
    with pytest.raises(SandboxRefused, match="partial clone"):
        PrivateClone().create(SandboxRequest("p", tmp_path / "lacking"), tmp_path / "second")


def test_missing_objects_of_a_full_clone_are_an_error(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a": "1\n"})
    name = git(resource, "rev-parse", "HEAD:a").decode().strip()
    (resource / ".git" / "objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(GitFailed):
        make(resource, from_head=True)


def test_a_sha256_repository(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a": "1\n"}, "--object-format=sha256")
    write(resource, {"b": "2\n"})
    sandbox = make(resource)
    write(sandbox.root, {"a": "changed\n"})
    (sandbox.root / "b").unlink()
    found = sandbox.scan()
    after = found["a"].after
    assert after is not None
    assert len(after.content) == 64
    assert sandbox.state_of("a") == after
    assert sandbox.tree({path: step.after for path, step in found.items()}) != sandbox.base
    sandbox.restore({path: step.before for path, step in found.items()})
    assert sandbox.scan() == {}
    assert git(sandbox.root, "status", "--porcelain") == b"A  b\n"


def test_refuses_a_bare_repository_with_a_reason(tmp_path: Path, make: Make) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    assert PrivateClone().suits(tmp_path / "bare.git")
    with pytest.raises(SandboxRefused, match="bare repository"):
        make(tmp_path / "bare.git")
    with pytest.raises(SandboxRefused, match="bare repository"):
        find_resource(tmp_path / "bare.git")


def test_refuses_an_invalid_repository(tmp_path: Path, make: Make) -> None:
    (tmp_path / "broken" / ".git").mkdir(parents=True)
    with pytest.raises(SandboxRefused, match="not a git repository"):
        make(tmp_path / "broken")
    outer = make_repository(tmp_path / "outer", {"a": "a\n"})
    (outer / "inner" / ".git").mkdir(parents=True)
    with pytest.raises(SandboxRefused, match="inside the repository"):
        make(outer / "inner")
    with pytest.raises(ToolRefused):
        look_at(tmp_path / "missing")
    with pytest.raises(SandboxRefused, match="line break"):
        look_at(tmp_path / "line\nbreak")


def test_refuses_an_invalid_head(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    (resource / ".git" / "HEAD").write_text("0" * 39 + "1\n")
    with pytest.raises(SandboxRefused, match="HEAD"):
        make(resource)


def test_submodules_are_left_empty_and_never_changed(tmp_path: Path, make: Make) -> None:
    library = make_repository(tmp_path / "library", {"code.py": "1\n"})
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    git(resource, "submodule", "--quiet", "add", str(library), "deps/lib")
    commit_all(resource)
    sandbox = make(resource)
    assert any("deps/lib" in note for note in sandbox.notes)
    assert list((sandbox.root / "deps/lib").iterdir()) == []
    assert sandbox.scan() == {}
    state = sandbox.state_of("deps/lib")
    assert state is not None
    assert state.mode == GITLINK
    (sandbox.root / "deps/lib").rmdir()
    assert sandbox.scan() == {}
    (sandbox.root / "deps").rmdir()
    assert sandbox.scan() == {}, "a submodule is not deleted with its empty directory"
    # As after `git submodule update --init`, at another commit.
    write(library, {"code.py": "2\n"})
    commit_all(library)
    git(sandbox.root, "clone", "-q", str(library), "deps/lib")
    write(sandbox.root, {"deps/other": "x\n", "deps/lib/code.py": "3\n"})
    assert set(sandbox.scan()) == {"deps/other"}
    found = sandbox.scan()
    tree = sandbox.tree({path: step.after for path, step in found.items()})
    assert sandbox.diff(tree, options=("--name-only",)) == b"deps/other\n"


@pytest.mark.parametrize("kind", ["file", "files"])
def test_files_in_place_of_a_submodule_are_an_error_but_kept(tmp_path: Path, make: Make, kind: str) -> None:
    library = make_repository(tmp_path / "library", {"code.py": "1\n"})
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    git(resource, "submodule", "--quiet", "add", str(library), "lib")
    commit_all(resource)
    sandbox = make(resource)
    if kind == "file":
        (sandbox.root / "lib").rmdir()
        (sandbox.root / "lib").write_text("x")
    else:
        write(sandbox.root, {"lib/new.py": "x"})
    with pytest.raises(SandboxRefused, match="lib is a submodule"):
        sandbox.scan()


def test_nested_repositories_are_left_out_with_a_note(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    make_repository(resource / "vendored", {"x": "x\n"})
    make_repository(resource / "deep" / "unborn", {})
    write(resource, {"b": "b\n"})
    sandbox = make(resource)
    assert files_of(sandbox.root) == {"a", "b"}
    assert any("deep/unborn, vendored" in note for note in sandbox.notes)
    assert sandbox.base_states(["vendored"]) == {"vendored": None}


def test_ignored_files_are_copied_only_if_named(tmp_path: Path, make: Make) -> None:
    resource = make_repository(
        tmp_path / "r", {".gitignore": ".env*\nsecret/\n*.tmp\n", ".worktreeinclude": ".env\nsecret/*.key\n"}
    )
    write(
        resource,
        {".env": "A=1\n", ".env.prod": "B=2\n", "secret/a.key": "k\n", "secret/b": "b\n", "c.tmp": ""},
    )
    write(resource, {"plain": "untracked\n"})
    sandbox = make(
        resource, include=("*.tmp", "/plain", *patterns_in((resource / ".worktreeinclude").read_bytes()))
    )
    assert files_of(sandbox.root) == {
        ".gitignore",
        ".worktreeinclude",
        ".env",
        "secret/a.key",
        "c.tmp",
        "plain",
    }
    assert sandbox.base_states(["plain"])["plain"] is not None
    write(sandbox.root, {".env": "A=changed\n", "secret/a.key": "changed\n"})
    assert sandbox.scan() == {}


def test_from_head_includes_only_ignored_files(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {".gitignore": "*.env\n", "d": "a file in HEAD\n"})
    write(resource, {"e.env/x": "a directory in HEAD\n"})
    git(resource, "add", "-f", "e.env")
    commit_all(resource)
    (resource / "d").unlink()
    (resource / "e.env/x").unlink()
    (resource / "e.env").rmdir()
    write(resource, {"x.env": "1\n", "untracked.cfg": "2\n", "d/y.env": "3\n", "e.env": "4\n"})
    sandbox = make(resource, from_head=True, include=("*.env", "*.cfg"))
    assert (sandbox.root / "x.env").read_text() == "1\n"
    assert not (sandbox.root / "untracked.cfg").exists()
    assert (sandbox.root / "d").read_text() == "a file in HEAD\n"
    assert (sandbox.root / "e.env/x").read_text() == "a directory in HEAD\n"
    assert sandbox.notes == ("ignored files that could not be copied: d/y.env",)
    assert sandbox.scan() == {}


def test_an_included_file_that_is_in_the_base_by_force_is_not_overwritten(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {".gitignore": "*.env\n"})
    write(resource, {"forced.env": "1\n"})
    git(resource, "add", "-f", "forced.env")
    sandbox = make(resource, include=("*.env",))
    write(sandbox.root, {"forced.env": "2\n"})
    assert set(sandbox.scan()) == {"forced.env"}


def test_global_ignore_rules_apply(tmp_path: Path, make: Make, home: Path) -> None:
    write(home, {".config/git/ignore": "*.home\n", "mine": "*.named\n"})
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    write(resource, {".git/info/exclude": "*.info\n", "1.info": "", "2.home": "", "3.named": ""})
    sandbox = make(resource)
    assert files_of(sandbox.root) == {"a", "3.named"}
    write(sandbox.root, {"new.info": "", "new.home": ""})
    assert sandbox.scan() == {}
    assert git(sandbox.root, "status", "--porcelain") == b"A  3.named\n"
    PrivateClone().remove("plan-1", resource, tmp_path / "sandbox")
    git(resource, "config", "core.excludesFile", "~/mine")
    sandbox = make(resource)
    assert files_of(sandbox.root) == {"a", "2.home"}


@pytest.mark.parametrize("remote", [None, "https://example.org/r.git"])
@pytest.mark.parametrize("how", ["attributes", "autocrlf", "info", "home"])
def test_line_endings_follow_a_fresh_checkout(
    tmp_path: Path, make: Make, home: Path, how: str, remote: str | None
) -> None:
    resource = make_repository(tmp_path / "r", {"a.txt": "one\ntwo\n", "keep.bin": b"\0\r\n\n"})
    write(resource, {"crlf.txt": "was\r\ncrlf\r\n"})
    commit_all(resource)
    rule = "*.txt text eol=crlf\n*.bin binary\n"
    if how == "attributes":
        write(resource, {".gitattributes": "*.txt text=auto eol=crlf\n*.bin binary\n"})
        commit_all(resource)
    elif how == "autocrlf":
        git(resource, "config", "core.autocrlf", "true")
    elif how == "info":
        write(resource, {".git/info/attributes": rule})
    else:
        write(home, {".config/git/attributes": rule})
    (resource / "a.txt").unlink()
    git(resource, "checkout", "--", "a.txt", home=home)
    assert (resource / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    sandbox = make(resource, remote=remote)
    assert (sandbox.root / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert (sandbox.root / "keep.bin").read_bytes() == b"\0\r\n\n"
    assert sandbox.scan() == {}
    write(sandbox.root, {"a.txt": b"one\r\n2\r\n", "new.txt": b"new\r\n", "crlf.txt": b"still\r\ncrlf\r\n"})
    states = {path: sandbox.state_of(path) for path in ("a.txt", "new.txt", "crlf.txt", "no such")}
    assert states.pop("no such") is None
    found = sandbox.scan()
    assert {path: found[path].after for path in states} == states
    after = found["new.txt"].after
    assert after is not None
    assert sandbox.content(after.content) == (b"new\r\n" if remote is None else b"new\n")
    sandbox.restore({"a.txt": found["a.txt"].before})
    assert (sandbox.root / "a.txt").read_bytes() == b"one\r\ntwo\r\n"


def test_attributes_written_by_a_plan_on_a_remote_take_effect(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"d/a.txt": "a\n", "b.txt": "b\n"})
    sandbox = make(resource, remote="https://example.org/r.git")
    write(sandbox.root, {"d/.gitattributes": "*.txt text eol=crlf\n", "d/a.txt": b"x\r\n", "b.txt": b"x\r\n"})
    inside, outside = sandbox.state_of("d/a.txt"), sandbox.state_of("b.txt")
    found = sandbox.scan()
    assert (found["d/a.txt"].after, found["b.txt"].after) == (inside, outside)
    assert inside != outside
    (sandbox.root / "d/.gitattributes").unlink()
    assert sandbox.state_of("d/a.txt") == inside, "the index still holds them, and git asks it"
    (sandbox.root / "d/a.txt").unlink()
    sandbox.restore({path: step.after for path, step in found.items()})
    assert (sandbox.root / "d/a.txt").read_bytes() == b"x\r\n"
    sandbox.restore({path: step.before for path, step in found.items()})
    assert (sandbox.root / "d/a.txt").read_bytes() == b"a\n"


def test_a_file_committed_with_other_endings_is_unchanged(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a.txt": b"a\r\n", "b.txt": b"b\r\n"})
    write(resource, {".gitattributes": "*.txt text eol=lf\n"})
    git(resource, "add", ".gitattributes")
    git(resource, "commit", "-q", "-m", "attributes")
    sandbox = make(resource, from_head=True)
    assert (sandbox.root / "a.txt").read_bytes() == b"a\r\n"
    assert sandbox.scan() == {}
    write(sandbox.root, {"a.txt": b"a\r\n"})
    assert sandbox.scan() == {}, "it was written, and is the same"
    assert sandbox.state_of("a.txt") == sandbox.base_states(["a.txt"])["a.txt"]
    write(sandbox.root, {"a.txt": b"changed\r\n"})
    found = sandbox.scan()
    assert set(found) == {"a.txt"}
    assert sandbox.state_of("a.txt") == found["a.txt"].after


def test_modes_come_from_git_without_filesystem_support(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"run": "x\n", "plain": "y\n"})
    git(resource, "update-index", "--chmod=+x", "run")
    git(resource, "commit", "-q", "-m", "executable")
    git(resource, "config", "core.fileMode", "false")
    (resource / "run").chmod(0o644)
    (resource / "plain").chmod(0o755)
    write(resource, {"run": "changed\n", "plain": "changed\n"})
    sandbox = make(resource)
    states = sandbox.base_states(["run", "plain"])
    assert {path: state.mode for path, state in states.items() if state} == {
        "run": EXECUTABLE,
        "plain": REGULAR,
    }
    assert os.access(sandbox.root / "run", os.X_OK)
    assert sandbox.scan() == {}


@pytest.mark.parametrize(
    "shape", ["split", "version 4", "untracked cache", "sparse", "conflict", "intent to add"]
)
def test_any_kind_of_index_is_read_but_never_written(tmp_path: Path, make: Make, shape: str) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n", "b/c": "c\n", "b/.gitattributes": "x text\n"})
    write(resource, {"new": "new\n"})
    expected = {"a", "b/c", "b/.gitattributes", "new"}
    if shape == "split":
        git(resource, "config", "core.splitIndex", "true")
        git(resource, "update-index", "--split-index")
        git(resource, "add", "new")
    elif shape == "version 4":
        git(resource, "update-index", "--index-version", "4")
    elif shape == "untracked cache":
        git(resource, "config", "core.untrackedCache", "true")
        git(resource, "status")
    elif shape == "sparse":
        git(resource, "sparse-checkout", "set", "--cone", "--sparse-index", "elsewhere")
        assert not (resource / "b").exists()
    elif shape == "conflict":
        git(resource, "switch", "-q", "-c", "other")
        write(resource, {"a": "theirs\n"})
        git(resource, "commit", "-q", "-am", "theirs")
        git(resource, "switch", "-q", "main")
        write(resource, {"a": "ours\n"})
        git(resource, "commit", "-q", "-am", "ours")
        git(resource, "-c", "merge.conflictStyle=merge", "merge-file", "a", "a", "a")
        git(resource, "update-index", "--refresh")
        git(resource, "read-tree", "-m", "HEAD~1", "HEAD", "other")
    else:
        git(resource, "add", "-N", "new")
    before = fingerprint(resource / ".git", but=("refs/cleveragents",))
    sandbox = make(resource)
    assert fingerprint(resource / ".git", but=("refs/cleveragents",)) == before
    assert files_of(sandbox.root) == expected
    assert sandbox.scan() == {}
    write(sandbox.root, {"b/c": "changed\n"})
    assert set(sandbox.scan()) == {"b/c"}


@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
@pytest.mark.parametrize("others", [{}, {"new": "new\n"}], ids=["alone", "beside another change"])
def test_a_file_hidden_by_the_index_is_copied_as_it_is(
    tmp_path: Path, make: Make, mark: str, others: dict[str, str | bytes]
) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n", "b": "b\n"})
    git(resource, "update-index", mark, "a", "b")
    write(resource, {"a": "edited\n", **others})
    (resource / "b").unlink()
    before = fingerprint(resource / ".git", but=("refs/cleveragents",))
    sandbox = make(resource)
    assert fingerprint(resource / ".git", but=("refs/cleveragents",)) == before
    assert (sandbox.root / "a").read_text() == "edited\n"
    assert (sandbox.root / "b").exists() is (mark == "--skip-worktree"), "a file that is left out is no edit"
    assert sandbox.scan() == {}


def test_a_change_right_after_the_index_was_written_is_detected(tmp_path: Path, make: Make) -> None:
    """git compares times by the second; a copied index must not look newer than it is."""
    resource = make_repository(tmp_path / "r", {"a": "old\n"})
    index = resource / ".git" / "index"
    status = (resource / "a").stat()
    (resource / "a").write_text("new\n")
    # The worst case: same size and time as when git read the file, in the second the index was written.
    os.utime(resource / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.utime(index, ns=(status.st_mtime_ns, status.st_mtime_ns))
    sandbox = make(resource)
    assert (sandbox.root / "a").read_text() == "new\n"


def test_staged_content_survives_the_users_gc(tmp_path: Path, make: Make) -> None:
    """openai/codex#29388 kept checkpoints as refs and objects in the user's repository; ours are separate."""
    resource = make_repository(tmp_path / "r", {"a": "a\n", "b": "b\n"})
    write(resource, {"a": "staged\n", "d/new": "staged too\n"})
    git(resource, "add", "-A")
    sandbox = make(resource)
    git(resource, "reset", "-q", "--hard")
    git(resource, "reflog", "expire", "--expire=now", "--all")
    git(resource, "gc", "-q", "--prune=now")
    (sandbox.root / "a").unlink()
    (sandbox.root / "d/new").unlink()
    found = sandbox.scan()
    assert set(found) == {"a", "d/new"}
    sandbox.restore({path: step.before for path, step in found.items()})
    assert (sandbox.root / "a").read_text() == "staged\n"
    git(sandbox.root, "fsck", "--strict")


def test_the_base_survives_amend_and_gc_until_the_sandbox_is_removed(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a": "first\n"})
    old = git(resource, "rev-parse", "HEAD").decode().strip()
    sandbox = make(resource)
    write(resource, {"a": "amended\n"})
    git(resource, "commit", "-q", "-a", "--amend", "-m", "another")
    git(resource, "reflog", "expire", "--expire=now", "--all")
    git(resource, "pack-refs", "--all")
    git(resource, "gc", "-q", "--prune=now")
    (sandbox.root / "a").unlink()
    sandbox.restore(sandbox.base_states(["a"]))
    assert (sandbox.root / "a").read_text() == "first\n"
    git(sandbox.root, "fsck")
    PrivateClone().remove("plan-1", resource, tmp_path / "sandbox")
    assert b"cleveragents" not in git(resource, "for-each-ref")
    git(resource, "gc", "-q", "--prune=now")
    with pytest.raises(AssertionError):
        git(resource, "cat-file", "-e", old)


def test_removes_a_sandbox_whose_repository_is_gone(tmp_path: Path, make: Make) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    make(resource)
    resource.rename(tmp_path / "moved")
    PrivateClone().remove("plan-1", resource, tmp_path / "sandbox")
    assert [path.name for path in (tmp_path / "sandbox").iterdir()] == ["lock"]


def test_ignores_the_environment_of_a_hook(
    tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    other = make_repository(tmp_path / "other", {"b": "b\n"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert files_of(make(resource).root) == {"a"}


def test_find_resource_returns_the_root_and_the_rest(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"src/deep/a.py": "a\n"})
    plain = tmp_path / "plain" / "sub"
    plain.mkdir(parents=True)
    (tmp_path / "link").symlink_to(resource / "src")
    assert find_resource(resource) == (resource, "")
    assert find_resource(resource / "src" / "deep") == (resource, "src/deep")
    assert find_resource(resource / "src" / "deep" / "a.py") == (resource, "src/deep")
    assert find_resource(tmp_path / "link") == (resource, "src")
    assert find_resource(plain) == (plain, "")
    with pytest.raises(SandboxRefused, match="no such directory"):
        find_resource(tmp_path / "missing")
    with pytest.raises(SandboxRefused, match=r"inside a \.git directory"):
        find_resource(resource / ".git")


def test_find_resource_suggests_a_remedy_for_a_lost_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text(f"gitdir: {tmp_path}/moved/.git/worktrees/one\n")
    with pytest.raises(
        SandboxRefused, match=r"points to a missing repository.*`git worktree repair`.*submodule"
    ) as refused:
        find_resource(tmp_path)
    assert "git init" not in str(refused.value)


def test_find_resource_reports_gits_reason(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    (resource / ".git" / "config").write_text("[core\n")
    with pytest.raises(SandboxRefused, match="bad config"):
        find_resource(resource)


def test_refuses_sandboxes_inside_the_repository_unless_ignored(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "a\n"})
    request = SandboxRequest("plan-1", resource)
    with pytest.raises(SandboxRefused, match=r"inside it, in state"):
        PrivateClone().create(request, resource / "state" / "plan-1")
    write(resource, {".gitignore": "/state/\n"})
    sandbox = PrivateClone().create(request, resource / "state" / "plan-2")
    assert files_of(sandbox.root) == {"a", ".gitignore"}
