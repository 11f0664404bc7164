"""The contract of sandboxes that start with a tree of another sandbox."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from cleveragents.core.change import FileState
from cleveragents.core.errors import SandboxMissing, SandboxRefused
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest, StartTree
from cleveragents.sandboxes.registry import SandboxRegistry
from cleveragents.storage.database import Database, open_database
from tests.contracts.test_sandboxes import NOT_UNICODE, ODD
from tests.ready_database import ready_database
from tests.sandbox_resources import commit_all, fingerprint, git, make_repository, write

FILES: dict[str, str | bytes] = {
    "README.md": "# Read me\n",
    "src/main.py": "print('hello')\n",
    "gone.txt": "gone\n",
    ODD: "odd\n",
    NOT_UNICODE: "not unicode\n",
    ".gitignore": "*.log\nbuild/\n",
}


@dataclass
class Family:
    """A resource, and the sandbox of a plan whose files differ from the resource."""

    registry: SandboxRegistry
    resource: Path
    is_repository: bool
    database: Database
    parent: Sandbox = field(init=False)
    states: dict[str, FileState | None] = field(init=False)

    def __post_init__(self) -> None:
        self.parent = self.registry.create(SandboxRequest("parent", self.resource))
        root = self.parent.root
        (root / "gone.txt").unlink()
        write(root, {"README.md": "# Read me now\n", "new/file.txt": "new\n"})
        (root / "run.sh").write_text("#!/bin/sh\n")
        (root / "run.sh").chmod(0o755)
        (root / "link").symlink_to("new/file.txt")
        self.states = {path: step.after for path, step in self.parent.scan().items()}

    @property
    def start(self) -> StartTree:
        return StartTree("parent", self.parent.tree(self.states))

    def child(self, name: str = "child", include: tuple[str, ...] = ()) -> Sandbox:
        return self.registry.create(SandboxRequest(name, self.resource, include=include, start=self.start))


@pytest.fixture(params=[True, False], ids=["private_clone", "directory_copy"])
def family(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Family]:
    resource = tmp_path / "resource"
    if request.param:
        make_repository(resource, FILES)
        # Uncommitted, so that no commit has it.
        write(resource, {"untracked.txt": "untracked\n"})
    else:
        resource.mkdir()
        write(resource, {**FILES, "untracked.txt": "untracked\n"})
    with open_database(ready_database(tmp_path / "store.db")) as database:
        registry = SandboxRegistry(database, tmp_path / "sandboxes")
        yield Family(registry, resource, request.param, database)


def files(root: Path) -> dict[str, str]:
    return fingerprint(root, but=(".git/",))


def recorded(root: Path) -> dict[str, str]:
    return {path: what for path, what in files(root).items() if path != ".git" and what != "directory"}


def test_has_the_tree_and_no_other_changes(family: Family) -> None:
    child = family.child()
    assert recorded(child.root) == recorded(family.parent.root)
    assert child.base == family.start.tree
    assert child.scan() == {}


def test_is_independent_of_its_origin_and_of_pruned_objects(family: Family) -> None:
    child = family.child()
    wanted = {path: state for path, state in family.states.items() if state is not None}
    family.registry.remove("parent")
    if family.is_repository:
        (family.resource / "README.md").write_text("# Something else\n")
        commit_all(family.resource, "later")
        git(family.resource, "checkout", "-q", "--orphan", "fresh")
        git(family.resource, "branch", "-D", "main")
        git(family.resource, "reflog", "expire", "--expire=now", "--all")
        git(family.resource, "gc", "-q", "--prune=now")
    assert child.content(wanted["README.md"].content) == b"# Read me now\n"
    child.restore(child.base_states(["gone.txt", "src/main.py", "README.md"]))
    (child.root / "src/main.py").write_text("print('bye')\n")
    found = {path: step.after for path, step in child.scan().items()}
    assert list(found) == ["src/main.py"]
    assert b"-print('hello')" in child.diff(child.tree(found))


def test_later_changes_of_the_user_are_not_included(family: Family) -> None:
    write(family.resource, {"README.md": "# By the user\n", "theirs.txt": "theirs\n"})
    if family.is_repository:
        commit_all(family.resource, "by the user")
    child = family.child()
    assert (child.root / "README.md").read_text() == "# Read me now\n"
    assert not (child.root / "theirs.txt").exists()
    assert child.scan() == {}


def test_ignored_files_are_copied_as_usual(family: Family) -> None:
    write(family.resource, {"kept.log": "kept\n", "build/out": "out\n"})
    child = family.child(include=("*.log",))
    assert (child.root / "kept.log").read_text() == "kept\n"
    assert (child.root / "build/out").exists() is not family.is_repository
    assert child.scan() == {}
    assert child.unapplied().ignored == ()


def test_files_ignored_only_by_the_user_are_no_change(family: Family) -> None:
    """The plan has changed the rules since: files they hid would count as changes of the child."""
    (family.parent.root / ".gitignore").write_text("build/\n")
    family.states = {path: step.after for path, step in family.parent.scan().items()}
    write(family.resource, {"kept.log": "kept\n"})
    child = family.child(include=("*.log",))
    assert child.scan() == {}
    assert not (child.root / "kept.log").exists()


def test_refuses_a_missing_tree_and_leaves_nothing(family: Family) -> None:
    before = files(family.resource)
    request = SandboxRequest("child", family.resource, start=StartTree("parent", "1" * 40))
    with pytest.raises(SandboxRefused, match="cannot read tree"):
        family.registry.create(request)
    assert family.registry.row("child") is None
    assert files(family.resource) == before
    gone = SandboxRequest("child", family.resource, start=StartTree("nobody", family.start.tree))
    with pytest.raises(SandboxMissing):
        family.registry.create(gone)


def test_many_are_created_and_removed_concurrently(family: Family) -> None:
    before = fingerprint(family.resource)
    start, problems = family.start, []
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            barrier.wait(30)
            name = f"child-{number}"
            made = family.registry.create(SandboxRequest(name, family.resource, start=start))
            (made.root / "README.md").write_text(name)
            assert list(made.scan()) == ["README.md"]
            if number % 2:
                family.registry.remove(name)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert {row.plan_id for row in family.registry.rows()} == {"parent", "child-0", "child-2", "child-4"}
    for number in (0, 2, 4):
        family.registry.remove(f"child-{number}")
    assert fingerprint(family.resource) == before


def test_commands_in_it_see_a_repository_at_the_users_commit(family: Family) -> None:
    if not family.is_repository:
        assert not (family.child().root / ".git").exists()
        return
    first = git(family.resource, "rev-parse", "HEAD").decode()
    write(family.resource, {"later.txt": "later\n"})
    commit_all(family.resource, "later")
    child = family.child()
    assert git(child.root, "rev-parse", "HEAD").decode() == first
    assert git(child.root, "symbolic-ref", "HEAD") == b"refs/heads/main\n"
    said = git(child.root, "status", "--porcelain").decode().splitlines()
    assert "M  README.md" in said
    assert not any("later.txt" in line for line in said)


def test_a_sandbox_of_a_nested_sandbox(family: Family) -> None:
    child = family.child()
    (child.root / "deep.txt").write_text("deep\n")
    states = {path: step.after for path, step in child.scan().items()}
    start = StartTree("child", child.tree(states))
    grandchild = family.registry.create(SandboxRequest("grandchild", family.resource, start=start))
    for name in ("child", "parent"):
        family.registry.remove(name)
    assert recorded(grandchild.root).keys() == {*recorded_names(family), "deep.txt"}
    assert grandchild.scan() == {}


def recorded_names(family: Family) -> set[str]:
    """Return the names in the parent's records."""
    names = {*FILES, "untracked.txt"} | {path for path, state in family.states.items() if state is not None}
    return names - {path for path, state in family.states.items() if state is None}


@pytest.mark.parametrize("durability", ["normal", "full"])
def test_content_of_one_sandbox_is_copied_to_another(
    family: Family, durability: Literal["normal", "full"], tmp_path: Path
) -> None:
    if durability == "full":
        family.registry.remove("parent")
        with_flush = SandboxRegistry(family.database, tmp_path / "sandboxes", durability="full")
        family = Family(with_flush, family.resource, family.is_repository, family.database)
    child = family.child()
    (child.root / "made.txt").write_text("made there\n")
    states = {path: step.after for path, step in child.scan().items()}
    tree = child.tree(states)
    made = states["made.txt"]
    assert made is not None
    with pytest.raises(Exception, match="cat-file"):
        family.parent.content(made.content)
    family.parent.take_in(child, tree)
    family.parent.take_in(child, tree)
    family.registry.remove("child")
    assert family.parent.content(made.content) == b"made there\n"
    assert family.parent.files_below(tree)["made.txt"] == made
