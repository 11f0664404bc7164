"""Every unusual repository through the command line: apply and undo write the user's own bytes."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from cleveragents.apply.applier import TreeApplier
from cleveragents.apply.ports import CommitRequest
from cleveragents.core.errors import ApplyRefused, SandboxRefused
from cleveragents.core.identifiers import UlidSource
from cleveragents.sandboxes.ports import SandboxRequest, StartTree
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.storage.database import open_database
from tests.apply_bench import Edit, Link, Program, World, git, write
from tests.cli_bench import COMMAND, Agents, command_line, use_home
from tests.odd_repositories import (
    CONVERTING,
    CRLF,
    GROUP,
    LF,
    MIXED,
    REPOSITORIES,
    Change,
    Kind,
    Metadata,
    OddRepository,
    build,
    edited,
    metadata,
)
from tests.ready_database import ready_database

Worlds = Callable[[OddRepository], World]
ATTRIBUTES = CONVERTING[0]
MIXED_RULES = b"* text=auto eol=crlf\n*.dat ident working-tree-encoding=UTF-16\n"


@pytest.fixture
def agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    use_home(monkeypatch, tmp_path / "home", tmp_path / "state")
    monkeypatch.setenv("CLEVERAGENTS_SANDBOX_ISOLATION", "off")
    with command_line(monkeypatch, capfd) as run:
        yield run


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Worlds]:
    with open_database(ready_database(tmp_path / "state.db")) as database:

        def made(repository: OddRepository) -> World:
            build(repository, tmp_path / "project")
            return World(tmp_path, tmp_path / "project", database, TreeApplier(database, UlidSource()))

        yield made


@pytest.mark.parametrize("repository", REPOSITORIES, ids=str)
def test_apply_and_undo_keep_the_users_bytes(
    repository: OddRepository, agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    build(repository, root)
    monkeypatch.chdir(root)
    before, uncommitted = metadata(root), _uncommitted(root)
    ran = agents(*COMMAND[:-1], "--yes", "--", "sh", "-c", repository.script)
    assert ran.code == 0, ran.err
    after = metadata(root)
    seen = {path: after.pop(path).content for path in list(after) if path.startswith("seen")}
    if seen:
        status = seen.pop("seen/status").decode()
        assert {line[3:] for line in status.splitlines() if line} <= uncommitted
        shown = {path.removeprefix("seen/"): content for path, content in seen.items() if content}
        assert shown == _texts(before)
    assert {path: (file.mode, file.content) for path, file in after.items()} == _expected(repository, before)
    kept = before.keys() & after.keys()
    assert {path: _owner(after[path]) for path in kept} == {path: _owner(before[path]) for path in kept}
    if "shared/new" in after:
        assert after["shared/new"].owner[1] == GROUP
    undone = agents("plan", "undo", ran.id)
    assert undone.code == 0, undone.err
    assert metadata(root) == before


@pytest.mark.parametrize("repository", CONVERTING, ids=str)
def test_a_commit_has_gits_stored_form(repository: OddRepository, worlds: Worlds) -> None:
    world = worlds(repository)
    before, uncommitted = metadata(world.resource), _uncommitted(world.resource)
    world.plan("p", {path: edited(content) for path, content in _texts(before).items()})
    world.apply("p", CommitRequest("change one line of each"))
    assert _texts(metadata(world.resource)) == {
        path: edited(content) for path, content in _texts(before).items()
    }
    assert _uncommitted(world.resource) <= uncommitted
    # `text` makes git commit LF where CRLF was committed before.
    lines = world.git("diff", "--numstat", "--ignore-cr-at-eol", "HEAD~1", "HEAD").splitlines()
    assert set(lines) == {f"1\t1\t{path}" for path in _texts(before)}
    world.undo("p", CommitRequest("change them back"))
    assert metadata(world.resource) == before
    assert world.git("diff", "--stat", "--ignore-cr-at-eol", "HEAD~2", "HEAD") == ""


@pytest.mark.parametrize(
    ("rules", "settings"),
    [(b"* text=auto\n", {}), (b"", {"core.autocrlf": "true"})],
    ids=["text=auto", "autocrlf=true"],
)
def test_a_commit_has_new_and_moved_files_in_gits_stored_form(
    rules: bytes, settings: dict[str, str], worlds: Worlds
) -> None:
    committed: dict[str, Edit] = {".gitattributes": rules, "f": LF, "g": LF}
    world = worlds(OddRepository("lines", (Kind("", committed, {"f": CRLF}),), later=settings))
    world.git("-c", "core.autocrlf=false", "update-index", "--add", "--cacheinfo", _crlf_entry(world, "kept"))
    world.git("commit", "-q", "-m", "second")
    world.write({"kept": CRLF})
    before = metadata(world.resource)
    moved: dict[str, Edit] = {"f": None, "d/f": CRLF}
    world.plan("p", {**moved, "new": CRLF, "g": edited(CRLF), "kept": edited(CRLF)})
    world.apply("p", CommitRequest("move and add"))
    assert (world.resource / "d/f").read_bytes() == (world.resource / "new").read_bytes() == CRLF
    for path, content in {"d/f": LF, "new": LF, "g": edited(LF), "kept": edited(CRLF)}.items():
        assert world.git("show", f"HEAD:{path}").encode() + b"\n" == content, path
    assert world.git("diff", "--name-status", "-M", "HEAD~1", "HEAD", "--", "f", "d") == "R100\tf\td/f"
    assert not _uncommitted(world.resource)
    world.undo("p", CommitRequest("move back"))
    assert metadata(world.resource) == before
    assert world.git("diff", "--stat", "HEAD~2", "HEAD") == ""


@pytest.mark.parametrize("repository", CONVERTING, ids=str)
def test_a_plan_from_head_has_the_users_bytes(
    repository: OddRepository, worlds: Worlds, tmp_path: Path
) -> None:
    world = worlds(repository)
    expected = _texts(metadata(world.resource))
    changed = _uncommitted(world.resource) & expected.keys()
    world.git("worktree", "add", "-q", str(tmp_path / "fresh"), "HEAD")
    expected |= {path: (tmp_path / "fresh" / path).read_bytes() for path in changed}
    request = SandboxRequest("p", world.resource, from_head=True)
    sandbox = PrivateClone().create(request, tmp_path / "sandbox")
    assert _texts(metadata(sandbox.root)) == expected
    assert sandbox.scan() == {}


def test_a_sub_plan_has_its_parents_bytes(worlds: Worlds, tmp_path: Path) -> None:
    world = worlds(ATTRIBUTES)
    before = _texts(metadata(world.resource))
    world.plan("p", {"auto-crlf/a.txt": edited(CRLF)})
    start = StartTree("p", world.trees["p"])
    request = SandboxRequest("child", world.resource, start=start)
    child = PrivateClone().create(request, tmp_path / "child", world.sandboxes["p"])
    assert _texts(metadata(child.root)) == {**before, "auto-crlf/a.txt": edited(CRLF)}
    assert child.scan() == {}
    assert "auto-crlf/b.txt" not in git(child.root, "status", "--porcelain")
    assert "auto-crlf/a.txt" in git(child.root, "status", "--porcelain")


def test_attributes_in_a_plain_directory_change_no_byte(worlds: Worlds, tmp_path: Path) -> None:
    world = worlds(ATTRIBUTES)
    world.resource = tmp_path / "plain"
    files: dict[str, Edit] = {".gitattributes": MIXED_RULES, "a": LF, "b": MIXED, "c": CRLF, "d.dat": LF}
    write(world.resource, files)
    before = metadata(world.resource)
    world.plan("p", {path: edited(content) for path, content in files.items() if isinstance(content, bytes)})
    world.apply("p")
    for path in ("a", "b", "c", "d.dat"):
        assert (world.resource / path).read_bytes() == edited(before[path].content)
    world.undo("p")
    assert metadata(world.resource) == before


def test_undo_keeps_permissions_that_changed_since_the_apply(worlds: Worlds) -> None:
    world = worlds(REPOSITORIES[-1])
    world.plan("p", {"a.txt": edited(LF), "run.txt": edited(LF)})
    world.apply("p")
    (world.resource / "a.txt").chmod(0o600)
    os.setxattr(world.resource / "run.txt", "user.origin", b"elsewhere")
    world.undo("p")
    assert stat.S_IMODE((world.resource / "a.txt").stat().st_mode) == 0o600
    assert os.getxattr(world.resource / "run.txt", "user.origin") == b"elsewhere"
    assert (world.resource / "a.txt").read_bytes() == LF


def test_a_filtered_file_stays_as_git_stores_it(worlds: Worlds) -> None:
    world = worlds(ATTRIBUTES)
    world.git("config", "filter.large.clean", "echo pointer; cat >/dev/null")
    write(world.resource, {"large/.gitattributes": b"*.txt filter=large text\n", "large/a.txt": CRLF})
    os.utime(world.resource / "large/a.txt", (1_000_000_000, 1_000_000_000))  # git trusts its index
    world.git("add", "large")
    world.plan("p", {"auto-crlf/a.txt": edited(CRLF)})
    assert (world.sandboxes["p"].root / "large/a.txt").read_bytes() == b"pointer\n"
    world.apply("p")
    assert (world.resource / "large/a.txt").read_bytes() == CRLF


def test_refuses_a_change_to_a_filtered_file(worlds: Worlds) -> None:
    world = worlds(ATTRIBUTES)
    world.git("config", "filter.large.clean", "echo pointer; cat >/dev/null")
    world.write({"large/.gitattributes": b"*.txt filter=large\n", "large/a.txt": b"content\n"})
    os.utime(world.resource / "large/a.txt", (1_000_000_000, 1_000_000_000))  # git trusts its index
    world.git("add", "large")
    world.git("commit", "-q", "-m", "large")
    world.plan("p", {"large/a.txt": b"changed\n"})
    before = world.files()
    with pytest.raises(ApplyRefused) as refused:
        world.apply("p")
    assert "large/a.txt uses a filter that only your own git runs" in str(refused.value)
    assert [one.action for one in refused.value.remedies] == ["plan.review"]
    assert world.files() == before


def test_a_file_that_does_not_fit_its_encoding_is_named(worlds: Worlds, tmp_path: Path) -> None:
    world = worlds(ATTRIBUTES)
    remote = SandboxRequest("p", world.resource, from_head=True, remote="https://example.org/r.git")
    sandbox = PrivateClone().create(remote, tmp_path / "sandbox")
    assert sandbox.scan() == {}
    (sandbox.root / "wide/a.txt").write_bytes(b"plain\n")
    with pytest.raises(SandboxRefused, match=r"BOM is required in 'wide/a\.txt'"):
        sandbox.scan()


def test_refuses_to_commit_a_file_that_does_not_fit_its_encoding(worlds: Worlds) -> None:
    world = worlds(ATTRIBUTES)
    before = world.files()
    world.plan("p", {"wide/a.txt": b"plain\n"})
    with pytest.raises(ApplyRefused, match=r"BOM is required in 'wide/a\.txt'"):
        world.apply("p", CommitRequest("change it"))
    assert world.files() == before
    world.apply("p")
    assert (world.resource / "wide/a.txt").read_bytes() == b"plain\n"


def test_works_with_a_sandbox_and_a_journal_of_an_earlier_version(worlds: Worlds, tmp_path: Path) -> None:
    world = worlds(REPOSITORIES[1])
    before = metadata(world.resource)
    # Sandboxes of remotes still hold what git would commit, as all did earlier.
    request = SandboxRequest("p", world.resource, remote="https://example.org/r.git")
    made = PrivateClone().create(request, tmp_path / "sandbox")
    facts = json.loads((tmp_path / "sandbox/sandbox.json").read_text())
    for name in ("exact", "converts", "filters"):
        del facts[name]
    (tmp_path / "sandbox/sandbox.json").write_text(json.dumps(facts))
    sandbox = PrivateClone().open("p", world.resource, tmp_path / "sandbox")
    write(made.root, {"d/a.txt": edited(CRLF)})
    world.sandboxes["p"] = sandbox
    world.trees["p"] = sandbox.tree({path: step.after for path, step in sandbox.scan().items()})
    world.apply("p")
    assert (world.resource / "d/a.txt").read_bytes() == edited(CRLF)

    def forget(connection: Connection) -> None:
        row = connection.execute(text("select id, journal from applies")).one()
        journal = json.loads(row.journal)
        del journal["metadata"]
        values = {"id": row.id, "journal": json.dumps(journal)}
        connection.execute(text("update applies set journal = :journal where id = :id"), values)

    world.database.write(forget)
    world.undo("p")
    assert metadata(world.resource) == before


def test_restores_permissions_from_a_journal_of_an_earlier_version(worlds: Worlds) -> None:
    world = worlds(REPOSITORIES[-1])
    modes = {path: file.mode for path, file in metadata(world.resource).items()}
    world.plan("p", {"closed/x/y": None})
    world.apply("p")

    def reduce(connection: Connection) -> None:
        journal = json.loads(connection.execute(text("select journal from applies")).scalar_one())
        journal["emptied"] = {path: stat.S_IMODE(had[0]) for path, had in journal["emptied"].items()}
        assert journal["emptied"]["closed/x"] == 0o2750
        values = {"journal": json.dumps(journal)}
        connection.execute(text("update applies set journal = :journal"), values)

    world.database.write(reduce)
    world.undo("p")
    assert {path: file.mode for path, file in metadata(world.resource).items()} == modes


def test_a_directory_whose_group_cannot_be_restored_loses_setgid(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = worlds(REPOSITORIES[-1])
    world.plan("p", {"closed/x/y": None})
    world.apply("p")

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refuse)
    world.undo("p")
    found = (world.resource / "closed/x").stat()
    kept = found.st_gid == GROUP
    assert stat.S_IMODE(found.st_mode) == (0o2750 if kept else 0o750)
    assert os.getxattr(world.resource / "closed/x", "user.origin") == b"folder 1"


def _crlf_entry(world: World, path: str) -> str:
    """Return the command that puts the path into an index with CRLF, whatever the rules."""
    world.write({path: CRLF})
    name = git(world.resource, "hash-object", "-w", "--no-filters", path)
    return f"100644,{name},{path}"


def _uncommitted(root: Path) -> set[str]:
    """Return the user's changes, as git compares contents."""
    changed = git(root, "diff", "--name-only", "HEAD")
    # The user's index may report a file as unchanged if it is old enough. A new index has no times.
    new = {"GIT_INDEX_FILE": str(root / ".git/compared")}
    git(root, "read-tree", "HEAD", **new)
    differing = git(root, "diff", "--name-only", "--diff-filter=M", "HEAD", **new)
    others = git(root, "ls-files", "--others")
    return {*changed.splitlines(), *differing.splitlines(), *others.splitlines()}


def _texts(files: dict[str, Metadata]) -> dict[str, bytes]:
    return {path: file.content for path, file in files.items() if path.endswith(".txt")}


def _owner(file: Metadata) -> tuple[object, ...]:
    return file.owner, file.attributes


def _expected(repository: OddRepository, before: dict[str, Metadata]) -> dict[str, tuple[int, bytes]]:
    """Return mode and bytes of each file after the apply."""
    expected = {path: (file.mode, file.content) for path, file in before.items()}
    changed: dict[str, Change] = dict(repository.changed or {})
    if repository.changed is None:
        changed |= {path: edited(content) for path, content in _texts(before).items()}
    for path, edit in changed.items():
        if edit is None:
            del expected[path]
        elif isinstance(edit, int):
            expected[path] = (stat.S_IFREG | edit, before[path].content)
        elif isinstance(edit, tuple):
            expected[path] = (stat.S_IFREG | edit[0], edit[1])
        elif isinstance(edit, Link):
            expected[path] = (stat.S_IFLNK | 0o777, edit.target.encode())
        elif isinstance(edit, Program):
            expected[path] = (stat.S_IFREG | 0o755, edit.content)
        else:
            expected[path] = (before[path].mode if path in before else stat.S_IFREG | 0o644, edit)
    return expected
