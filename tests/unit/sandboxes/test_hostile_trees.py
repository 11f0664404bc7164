"""G1, G14: whatever a command left in a sandbox or does meanwhile, the host reads and
writes nothing outside.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cleveragents.context.code_index import CodePlace
from cleveragents.context.index.sqlite_code_index import SqliteCodeIndex
from cleveragents.context.search.git_history import GitCommitHistory
from cleveragents.core.errors import CleverAgentsError, GitFailed, SandboxRefused, SourceChanged
from cleveragents.git.blob_reader import BlobReader
from cleveragents.git.git_directory import LooseObjects
from cleveragents.git.index_file import plain_index
from cleveragents.git.plumbing import PrivateRepository, run_git, user_environment
from cleveragents.plans.calls.tool_execution import _text
from cleveragents.sandboxes.comparison import ResultTree, changed_between
from cleveragents.sandboxes.directory_copy import DirectoryCopy
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest, SandboxStrategy, SetupInputs
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.sandboxes.resources import find_resource, working_directory
from cleveragents.sandboxes.setup_cache import SetupCache
from cleveragents.sandboxes.tree import index as ignore_rules
from cleveragents.storage.backup import back_up
from cleveragents.storage.files.file_copy import copy_file
from tests.hostile_tree import CANARY, SHAPES, plant, swapping, taking
from tests.sandbox_resources import commit_all, fingerprint, git, make_repository, write

FILES = {"a.py": "def a(): ...\n", "run.sh": "true\n", ".gitignore": "*.log\nbuild/\n"}
FILES |= {f"d/f{number}": f"{number}\n" for number in range(40)}


@dataclass
class World:
    """A sandbox, and targets outside: a file, a directory of files, another repository."""

    sandbox: Sandbox
    resource: Path
    secret: Path
    other: Path
    place: Path

    @property
    def root(self) -> Path:
        return self.sandbox.root

    def outside(self) -> dict[str, object]:
        return {**fingerprint(self.secret.parent), **fingerprint(self.other)}


@pytest.fixture(params=[PrivateClone, DirectoryCopy], ids=["private_clone", "directory_copy"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    strategy: SandboxStrategy = request.param()
    resource = tmp_path / "resource"
    if isinstance(strategy, PrivateClone):
        make_repository(resource, dict(FILES))
    else:
        resource.mkdir()
        write(resource, dict(FILES))
    secrets = tmp_path / "secrets"
    write(secrets, {"secret": f"{CANARY}\n", "secret.log": f"{CANARY}\n", "f1": f"{CANARY}\n"})
    write(secrets, {".gitignore": f"{CANARY}\n", "build/x": f"{CANARY}\n"})
    (secrets / "secret").chmod(0o600)
    other = make_repository(tmp_path / "other", {"private.py": f"# {CANARY}\n"})
    write(other, {"a.py": CANARY})
    commit_all(other, CANARY)
    sandbox = strategy.create(SandboxRequest("plan-1", resource), tmp_path / "state/sandboxes/plan-1")
    assert isinstance(sandbox, Sandbox)
    if not (sandbox.root / ".git").exists():
        git(sandbox.root, "init", "-q")
    return World(sandbox, resource, secrets / "secret", other, tmp_path)


Entry = Callable[[World], object]


def scan(world: World) -> object:
    return world.sandbox.scan()


def states(world: World) -> object:
    return [
        world.sandbox.state_of(path) for path in ("a.py", "d/f1", "d/secret", "nested/private.py", "pipe")
    ]


def ignored(world: World) -> object:
    return world.sandbox.ignored(["a.log", "d/secret.log", "build/x", "d/build/x"])


def ignored_entries(world: World) -> object:
    return world.sandbox.unapplied().ignored


def without_ignored(world: World) -> object:
    with world.sandbox.writing(), world.sandbox.without_ignored() as entries:
        return entries


def restore(world: World) -> object:
    with world.sandbox.writing():
        world.sandbox.restore(world.sandbox.base_states(FILES))
    return None


def forget(world: World) -> object:
    """Roll back what a plan created at the same paths."""
    with world.sandbox.writing():
        world.sandbox.restore(dict.fromkeys(["d/secret", "d/f1", "d/build/x"]))
    return None


def put_aside(world: World) -> object:
    with world.sandbox.writing():
        return world.sandbox.put_aside()


def diff(world: World) -> object:
    sandbox = world.sandbox
    found = sandbox.scan()
    tree = sandbox.tree({path: step.after for path, step in found.items()})
    changed = changed_between(ResultTree(sandbox, sandbox.base), ResultTree(sandbox, tree))
    return sandbox.diff(tree), changed, sandbox.merge(sandbox.base, tree, sandbox.base, labels=("a", "b"))


def context(world: World) -> object:
    place = CodePlace(world.root, home=world.resource, git_dir=world.root.parent / "engine")
    with SqliteCodeIndex(world.place / "index").open(place) as snapshot:
        texts = [snapshot.text(file.path) for file in snapshot.files]
        return snapshot.status.notes, [file.path for file in snapshot.files], texts


def history(world: World) -> object:
    place = CodePlace(world.root, home=world.resource, git_dir=world.root.parent / "engine")
    return GitCommitHistory(world.place / "index").commits(place, limit=50)


def set_up(world: World) -> object:
    cache = SetupCache(world.place / "cache")
    world.sandbox.count_as_set_up()
    inputs = SetupInputs("default", ("build", "d"), {"argv": ["make"]})
    key = cache.key(inputs, world.root) or "none: files vanish while they are read"
    cache.keep(key, world.root, ["build", "d"])
    kept = [path.read_text() for path in (world.place / "cache").rglob("*") if path.is_file()]
    return cache.take(key, world.root, ["build", "d"]), kept


def backup(world: World) -> object:
    target = world.place / "backup"
    shutil.rmtree(target, ignore_errors=True)
    back_up(world.place / "state", "postgresql:", target, lambda line: None)
    files = [Path(folder, name) for folder, _, names in os.walk(target) for name in names]
    return [path.read_bytes() for path in files if path.is_file() and not path.is_symlink()]


def visible(world: World) -> object:
    with world.sandbox.writing():
        return None


# Those that change the tree come last, so that the others see the planted files.
ENTRIES: list[Entry] = [
    *(scan, states, ignored, ignored_entries, diff, context, history, set_up, backup),
    *(without_ignored, put_aside, restore, forget, visible),
]


def told(world: World, entry: Entry) -> str:
    """Return the output of an entry point, including errors."""
    try:
        return repr(entry(world))
    except CleverAgentsError as error:
        return f"{error!r} {error}"


def kept(world: World) -> bytes:
    """Return every content that the sandbox has stored."""
    objects = world.root.parent / "engine/objects"
    return b"".join(zlib.decompress(path.read_bytes()) for path in objects.glob("??/*"))


@pytest.mark.parametrize("shape", SHAPES)
def test_planted_links_are_not_followed(world: World, shape: str) -> None:
    plant(shape, world.root, world.secret, world.other)
    before = world.outside()
    for entry in ENTRIES:
        assert CANARY not in told(world, entry), entry.__name__
        assert world.outside() == before, entry.__name__
        assert CANARY.encode() not in kept(world), entry.__name__


def test_a_directory_swapped_for_a_link_is_not_followed(world: World) -> None:
    write(world.root, {"d/new": "1\n", "d/x.log": "1\n", "d/build/x": "1\n"})
    before = world.outside()
    with swapping(world.root / "d", world.secret.parent):
        for entry in ENTRIES * 5:
            assert CANARY not in told(world, entry), entry.__name__
    assert world.outside() == before
    assert CANARY.encode() not in kept(world)


Restore = Callable[[World, Path], None]


def naively(world: World, tree: Path) -> None:
    index = world.root.parent / "engine/base.index"
    PrivateRepository(world.root.parent / "engine").git(
        "checkout-index", "--all", work_tree=tree, index=index
    )


def safely(world: World, tree: Path) -> None:
    world.sandbox.restore(world.sandbox.base_states(FILES))


def restored_while_taken(world: World, tree: Path, restore: Restore) -> int:
    """Return how many files of `d` landed outside while a process moved the directory away at once."""
    before = set(world.secret.parent.iterdir())
    shutil.rmtree(tree / "d", ignore_errors=True)
    with taking(tree / "d", world.secret.parent):
        for _ in range(100):
            with suppress(CleverAgentsError):
                restore(world, tree)
            if set(world.secret.parent.iterdir()) != before:
                break
            with suppress(OSError):
                (tree / "d").unlink()
    return len(set(world.secret.parent.iterdir()) - before)


def test_no_file_is_restored_through_a_moved_directory(world: World) -> None:
    assert restored_while_taken(world, world.root, safely) == 0


def test_git_itself_would_restore_through_a_moved_directory(world: World) -> None:
    """The naive way, which the test above must catch."""
    copy = world.place / "copy"
    copy.mkdir()
    assert restored_while_taken(world, copy, naively) > 0


@pytest.mark.parametrize("planted", ["fsmonitor", "alias", "hook", "worktree config", "include", "filter"])
def test_planted_code_does_not_run_in_a_persons_git(tmp_path: Path, planted: str) -> None:
    resource = make_repository(tmp_path / "r", {"a": "1\n", ".gitattributes": "a filter=x\n"})
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    included = sandbox.root / "included"
    with sandbox.writing():
        root = sandbox.root
        git(root, "branch", "mine")
        write(root, {"a": "stashed\n"})
        git(root, "stash", "-q")
        write(root, {"a": "2\n", "included": f"[core]\n\tfsmonitor = {evil}\n"})
        git(root, "add", "a")
        if planted == "fsmonitor":
            git(root, "config", "core.fsmonitor", str(evil))
        elif planted == "alias":
            git(root, "config", "alias.st", f"!{evil}")
            git(root, "config", "core.pager", str(evil))
        elif planted == "hook":
            write(root, {".git/hooks/post-checkout": evil.read_text()})
            (root / ".git/hooks/post-checkout").chmod(0o755)
        elif planted == "worktree config":
            git(root, "config", "extensions.worktreeConfig", "true")
            write(root, {".git/config.worktree": f"[core]\n\tfsmonitor = {evil}\n"})
        elif planted == "include":
            git(root, "config", "include.path", str(included))
        else:
            git(root, "config", "filter.x.clean", str(evil))
            git(root, "config", "filter.x.smudge", str(evil))
    assert b"M  a" in git(sandbox.root, "status", "--porcelain"), "the index stays"
    assert git(sandbox.root, "stash", "list").count(b"\n") == 1, "the stash stays"
    git(sandbox.root, "checkout", "-q", "mine")
    done = subprocess.run(["git", "st"], cwd=sandbox.root, env={**os.environ, "HOME": "/"}, check=False)
    assert done.returncode != 0, "the alias is gone"
    assert not (tmp_path / "ran").exists()


INSIDE = """
mkrepo() { git init -q $1; git -C $1 -c user.name=a -c user.email=a commit -q --allow-empty -m x; }
evil() { git config --file $1 core.fsmonitor "touch %(trace)s; false"; }
"""
LOOKED_INTO = {
    "nested": "mkrepo n; evil n/.git/config",
    "ignored": "echo n/ > .gitignore; mkrepo n; git add -f n; evil n/.git/config",
    "gitdir file": "mkrepo n; mv n/.git eg; echo 'gitdir: ../eg' > n/.git; git add n; evil eg/config",
    "module": "mkrepo n; mkdir .git/modules; mv n/.git .git/modules/n; "
    "echo 'gitdir: ../.git/modules/n' > n/.git; git add n; evil .git/modules/n/config",
    "split index": "echo n/ > .gitignore; mkrepo n; git add -f n; git update-index --split-index; "
    "evil n/.git/config",
    "huge index": "mkrepo n; git add n; truncate -s 70M .git/index; evil n/.git/config",
    "many": "for i in $(seq 210); do git init -q d$i; done; mkrepo z; git add z; evil z/.git/config",
    "inside another": "echo n/ > .gitignore; mkrepo n; (cd n; mkrepo inner; git add inner; "
    "evil inner/.git/config); git add -f n",
    "bare": "rm -rf .git/*; echo junk > .git/HEAD; git init -q --bare b; mv b/* .; "
    "git config --file config core.bare false; git config --file config core.worktree .; evil config",
    "head is a directory": "rm .git/HEAD; mkdir .git/HEAD; git init -q --bare b; mv b/* .; "
    "git config --file config core.bare false; git config --file config core.worktree .; evil config",
    "objects are a file": "rm -rf .git/objects; touch .git/objects; git init -q --bare b; mv b/* .; "
    "git config --file config core.bare false; git config --file config core.worktree .; evil config",
    "a link to a git directory": "mkrepo n; mv n/.git eg; ln -s ../eg n/.git; git add n; evil eg/config",
    "pipes": "rm -f .git/HEAD .git/index; mkfifo .git/HEAD .git/index",
    "a common directory": "rm -rf .git; mkdir -p c/objects c/refs; echo c > commondir; "
    "echo 'ref: refs/heads/main' | tee HEAD > c/HEAD; "
    "git config --file c/config extensions.worktreeConfig true; "
    "git config --file c/config core.repositoryformatversion 1; evil c/config; "
    "git config --file config.worktree core.bare false; git config --file config.worktree core.worktree .",
    "bare behind a file": "rm -rf .git; git init -q --bare b; mv b/* .; "
    "git config --file config core.bare false; git config --file config core.worktree .; evil config; "
    "echo 'gitdir: nowhere' > .git",
}


@pytest.mark.parametrize("how", LOOKED_INTO)
def test_code_planted_in_nested_repositories_does_not_run(world: World, how: str) -> None:
    script = INSIDE % {"trace": world.place / "ran"} + LOOKED_INTO[how]
    environment = {"PATH": os.environ["PATH"], "HOME": str(world.place)}
    with world.sandbox.writing():
        subprocess.run(["sh", "-ec", script], cwd=world.root, env=environment, check=True, timeout=60)
        (world.place / "ran").unlink(missing_ok=True)
        world.sandbox.scan()
    if how in ("ignored", "split index"):  # the scan has disarmed it, and no index refers to it
        armed = INSIDE % {"trace": world.place / "ran"} + "evil n/.git/config"
        subprocess.run(["sh", "-ec", armed], cwd=world.root, env=environment, check=True, timeout=60)
    subprocess.run(["git", "status"], cwd=world.root, env=environment, check=False, timeout=60)
    if how == "nested":
        subprocess.run(["git", "status"], cwd=world.root / "n", env=environment, check=False, timeout=60)
    assert not (world.place / "ran").exists()


def test_a_repository_of_another_format_loses_its_index(world: World) -> None:
    """One file can be two indexes: names of 20 bytes and of 32 bytes are parsed differently."""
    git(world.root, "init", "-q", "--object-format=sha256", "n")
    write(world.root, {"n/b": "1\n"})
    git(world.root / "n", "add", "b")
    with world.sandbox.writing():
        world.sandbox.scan()
    assert not (world.root / "n/.git/index").exists()


TAKEN = {
    **{f"the tree, mode {mode}": f"chmod {mode} ." for mode in ("555", "444", "311", "300", "111", "000")},
    "the git directory": "chmod 555 .git",
    "a directory in it": "echo x > .git/objects/info/http-alternates; chmod 555 .git/objects/info",
    "a link below": "mkdir .git/refs/x; ln -s / .git/refs/x/y; chmod 555 .git/refs/x",
    **{
        f"a repository inside, mode {mode}": f"git init -q n; cp .git/config n/.git; chmod {mode} n/.git n"
        for mode in ("555", "444", "311", "000")
    },
}


def reset_by_its_owner(place: Path, strategy: SandboxStrategy, how: str) -> None:
    """Plant configuration, remove permissions, and reset the sandbox."""
    if strategy.suits(make_repository(place / "r", {"a": "1\n"})):
        resource = place / "r"
    else:
        resource = place / "plain"
        write(resource, {"a": "1\n"})
    sandbox = strategy.create(SandboxRequest("plan-1", resource), place / "sandbox")
    script = f"git init -q; git config core.fsmonitor 'touch {place}/ran; false'; {TAKEN[how]}"
    with sandbox.writing():
        subprocess.run(["sh", "-ec", script], cwd=sandbox.root, check=True, timeout=60)
        if "inside" in how:
            sandbox.scan()
    assert b"fsmonitor" not in (sandbox.root / ".git/config").read_bytes()
    assert not os.path.lexists(sandbox.root / ".git/refs/x/y")
    assert "inside" not in how or b"fsmonitor" not in (sandbox.root / "n/.git/config").read_bytes()
    sandbox.scan()
    working_directory(sandbox.root, "made")
    sandbox.restore({"a": None})
    assert not (sandbox.root / "a").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("how", TAKEN)
@pytest.mark.parametrize("strategy", [PrivateClone(), DirectoryCopy()], ids=["clone", "copy"])
def test_removed_permissions_do_not_protect_planted_code(
    monkeypatch: pytest.MonkeyPatch, strategy: SandboxStrategy, how: str
) -> None:
    """As a user who is bound by permissions: root would not notice them."""
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o777)
        monkeypatch.setenv("HOME", made)
        (place / "root").mkdir()
        reset_by_its_owner(place / "root", strategy, how)  # no module is imported after this
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
                reset_by_its_owner(place, strategy, how)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


NAMED = {
    "an ignored directory": "build/n",
    "below many ignored directories": f"build/{'d/' * 300}n",
    "a directory too deep to be recorded": f"{'e/' * 210}n",
    "a repository in an ignored directory": "build/m/n",
}
RESETS = (
    "git reset -q; git status",
    "git checkout -qf; git diff",
    "git switch -qf side; git status",
    "git stash",
)


@pytest.mark.parametrize("where", NAMED)
def test_no_commit_names_an_armed_repository(world: World, where: str) -> None:
    """If the index names none, commits may: commands that read files from them look there next."""
    trace, path = world.place / "ran", NAMED[where]
    script = f"""
mkdir -p $(dirname {path}); git add a.py .gitignore; git commit -q --allow-empty -m 1
git switch -qc side; mkrepo {path}; git add -f {path}; git commit -qm 2; git branch -f main
evil {path}/.git/config
[ {path} != build/m/n ] || git init -q build/m"""
    environment = {"PATH": os.environ["PATH"], "HOME": str(world.place)}
    environment |= {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

    def run(script: str) -> bool:
        """Run a command like a person; return whether the planted code ran."""
        trace.unlink(missing_ok=True)
        subprocess.run(["sh", "-c", script], cwd=world.root, env=environment, check=False, timeout=60)
        return trace.exists()

    with suppress(SandboxRefused), world.sandbox.writing():
        subprocess.run(
            ["sh", "-ec", INSIDE % {"trace": trace} + script], cwd=world.root, env=environment, check=True
        )
        assert run(RESETS[0]), "it is armed"
        world.sandbox.scan()
    assert not [command for command in RESETS if run(command)]


POINTED = {
    "HEAD": "echo {old} > .git/HEAD",
    "a branch": "echo {old} > .git/refs/heads/main",
    "another branch": "mkdir .git/refs/heads/d; echo {old} > .git/refs/heads/d/side; "
    "echo ref: refs/heads/d/side > .git/HEAD",
    "packed refs": "echo {old} refs/heads/side > .git/packed-refs",
    "a reflog": "mkdir .git/logs; echo {old} {old} 'a <a> 1 +0000	x' > .git/logs/HEAD",
    "a name in capitals": "echo {old} > .git/ORIG_HEAD",
    "a link": "rm .git/refs/heads/main; echo {old} > x; ln -s ../../../x .git/refs/heads/main",
}


@pytest.mark.parametrize("how", POINTED)
def test_no_older_commit_names_an_armed_repository(tmp_path: Path, how: str) -> None:
    """No commit by a command is needed: the user's may name a repository in a directory ignored today."""
    resource = make_repository(tmp_path / "r", {"a": "1\n"})
    make_repository(resource / "build/n", {"b": "1\n"})
    old = commit_all(resource)
    shutil.rmtree(resource / "build")
    write(resource, {".gitignore": "build/\n"})
    commit_all(resource)
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    script = INSIDE % {"trace": tmp_path / "ran"} + "mkrepo build/n; evil build/n/.git/config; "
    script += POINTED[how].format(old=old)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with sandbox.writing():
        subprocess.run(["sh", "-ec", script], cwd=sandbox.root, env=environment, check=True, timeout=60)
        sandbox.scan()
    assert b"fsmonitor" not in (sandbox.root / "build/n/.git/config").read_bytes()


def test_ignored_directories_are_not_searched_without_a_reference(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "1\n", ".gitignore": "build/\n"})
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    with sandbox.writing():
        inner = make_repository(sandbox.root / "build/n", {"b": "1\n"})
        git(inner, "config", "core.fsmonitor", "false")
        git(sandbox.root, "status")
        sandbox.scan()
    assert b"fsmonitor" in (inner / ".git/config").read_bytes(), "that would cost a walk each time"


HIDDEN = {
    "a repository": "mkrepo build/n; evil build/n/.git/config",
    "a hook": "mkrepo build/n; echo fsmonitor > build/n/.git/hooks/post-checkout",
    "another name": "mkrepo build/n; mv build/n/.git build/g; echo 'gitdir: ../g' > build/n/.git; "
    "evil build/g/config",
    "a link": "mkrepo build/n; mv build/n/.git build/g; ln -s ../g build/n/.git; evil build/g/config",
    "bare": "git init -q --bare build/n; evil build/n/config",
    "a common directory": "git init -q --bare build/c; rm -r build/c/HEAD build/c/hooks; mkdir build/n; "
    "cp .git/HEAD build/n; echo ../c > build/n/commondir; evil build/n/config; evil build/n/config.worktree",
    "inside a repository": "mkrepo build/n; mkrepo build/n/x/y; evil build/n/x/y/.git/config",
    "inside a bare one": "git init -q --bare build/n; mkrepo build/n/objects/y; "
    "evil build/n/objects/y/.git/config",
    "many": "for i in $(seq 210); do git init -q build/d$i; done; mkrepo build/z; evil build/z/.git/config",
}


@pytest.mark.parametrize("how", HIDDEN)
def test_git_directories_in_ignored_directories_are_disarmed(world: World, how: str) -> None:
    script = INSIDE % {"trace": world.place / "ran"} + "mkdir build; " + HIDDEN[how]
    environment = {"PATH": os.environ["PATH"], "HOME": str(world.place)}
    with world.sandbox.occupied():
        subprocess.run(["sh", "-ec", script], cwd=world.root, env=environment, check=True, timeout=60)
        write(world.root, {"build/output": "fsmonitor"})
    made = ["."] if world.sandbox.facts.common_dir is None else []
    assert list(world.sandbox.unapplied().repositories) == made, "ignored files are reported as ignored"
    armed = [path for path in (world.root / "build").rglob("*") if path.is_file()]
    armed = [path for path in armed if b"fsmonitor" in path.read_bytes()]
    assert armed == [world.root / "build/output"], "no other file of an ignored directory is touched"
    assert not [path for path in (world.root / "build").rglob(".git") if not path.is_dir()]


def test_repositories_below_a_submodule_are_disarmed(tmp_path: Path) -> None:
    """A commit may name it instead of the submodule."""
    resource = make_repository(tmp_path / "r", {"a": "1\n"})
    make_repository(resource / "sub", {"b": "1\n"})
    commit_all(resource)
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    with sandbox.occupied():
        inner = make_repository(sandbox.root / "sub/x/inner", {"b": "1\n"})
        git(inner, "config", "core.fsmonitor", "false")
    assert b"fsmonitor" not in (inner / ".git/config").read_bytes()


def test_a_directory_moved_during_the_search_is_not_followed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way up is verified: `..` of a moved directory is elsewhere."""
    write(world.root, {"build/d/e/f": "1\n"})
    git(world.other, "config", "core.fsmonitor", "false")
    before, really = world.outside(), os.scandir

    def move(directory: int) -> Any:
        if (world.root / "build/d/e").is_dir() and os.path.samestat(
            os.fstat(directory), (world.root / "build/d/e").stat()
        ):
            (world.root / "build/d/e").rename(world.other / "e")
        return really(directory)

    with pytest.raises(SandboxRefused, match="moved"), world.sandbox.occupied():
        monkeypatch.setattr(os, "scandir", move)
    monkeypatch.undo()
    (world.other / "e").rename(world.root / "build/d/e")
    assert world.outside() == before


@pytest.mark.parametrize("inside", ["", "inner", "build/n"])
def test_nothing_in_a_git_directory_blocks_git(world: World, inside: str) -> None:
    """A pipe would block forever, a device would be read forever."""
    root = world.root / inside
    pipes = ("packed-refs", "shallow", "refs/heads/p", "logs/HEAD", "COMMIT_EDITMSG", "info/grafts", "x")
    with world.sandbox.writing():
        if inside:
            make_repository(root, {"b": "1\n"})
        for name in pipes:
            (root / ".git" / name).parent.mkdir(exist_ok=True)
            (root / ".git" / name).unlink(missing_ok=True)
            os.mkfifo(root / ".git" / name)
        with socket.socket(socket.AF_UNIX) as listening, chdir(root / ".git"):
            listening.bind("s")
    with world.sandbox.occupied():
        pass
    kinds = {stat.S_IFMT(path.lstat().st_mode) for path in (root / ".git").rglob("*")}
    assert kinds == {stat.S_IFREG, stat.S_IFDIR}
    subprocess.run(["git", "log", "--all"], cwd=root, check=False, timeout=10)


@pytest.mark.parametrize("replaced_by", ["link", "file", "pipe"])
def test_a_replaced_tree_is_not_followed(world: World, replaced_by: str) -> None:
    """A command without isolation can do that."""
    git(world.other, "config", "core.fsmonitor", "false")
    before = world.outside()
    with suppress(SandboxRefused), world.sandbox.writing():
        world.root.rename(world.place / "taken")
        if replaced_by == "link":
            world.root.symlink_to(world.other)
        elif replaced_by == "file":
            world.root.touch()
        else:
            os.mkfifo(world.root)
    for entry in ENTRIES:
        with suppress(OSError):
            assert CANARY not in told(world, entry), entry.__name__
    assert world.outside() == before


def test_a_nested_repository_keeps_only_its_remotes(world: World) -> None:
    inner = make_repository(world.root / "inner", {"b": "1\n"})
    git(inner, "remote", "add", "origin", "https://example.org/x.git")
    git(inner, "config", "alias.x", "!true")
    with world.sandbox.writing():
        world.sandbox.scan()
    assert git(inner, "config", "remote.origin.url") == b"https://example.org/x.git\n"
    assert b"alias" not in (inner / ".git/config").read_bytes()


def index_entry(mode: int, name: bytes, *, claimed: int | None = None, stage: int = 0) -> bytes:
    flags = struct.pack(">H", (len(name) if claimed is None else claimed) | stage << 12)
    entry = struct.pack(">10I", *(0,) * 6, mode, *(0,) * 3) + b"\1" * 20 + flags + name
    return entry + bytes(8 - len(entry) % 8)


def index_of(count: int, body: bytes) -> bytes:
    data = struct.pack(">4sII", b"DIRC", 2, count) + body
    return data + hashlib.sha1(data).digest()


def hidden_by_a_length() -> bytes:
    """Build an index in which git reads the first name across the second entry, followed by a submodule."""
    link, second = index_entry(0o160000, b"build/n"), index_entry(0o100644, b"b")
    first = index_entry(0o100644, b"a")
    hidden = second + b"ZZZZ" + struct.pack(">I", len(link))
    claimed = len(first) + len(hidden) - 62 - 8
    return index_of(2, index_entry(0o100644, b"a", claimed=claimed) + hidden + link)


CRAFTED = {
    "length": hidden_by_a_length,
    "one of its stages": lambda: index_of(
        2, index_entry(0o160000, b"build/n", stage=1) + index_entry(0o100644, b"build/n", stage=2)
    ),
    "permissions": lambda: index_of(1, index_entry(0o160755, b"build/n")),
}


@pytest.mark.parametrize("how", CRAFTED)
@pytest.mark.parametrize("inside", ["", "inner"])
def test_no_crafted_index_hides_a_submodule_from_us(world: World, how: str, inside: str) -> None:
    """In an ignored directory, where nothing else would find it."""
    root = world.root / inside
    script = INSIDE % {"trace": world.place / "ran"} + "mkdir build; mkrepo build/n; evil build/n/.git/config"
    environment = {"PATH": os.environ["PATH"], "HOME": str(world.place)}
    with world.sandbox.writing():
        if inside:
            make_repository(root, {".gitignore": "build/\n"})
        subprocess.run(["sh", "-ec", script], cwd=root, env=environment, check=True, timeout=60)
        (root / ".git/index").write_bytes(CRAFTED[how]())
        world.sandbox.scan()
    armed = INSIDE % {"trace": world.place / "ran"} + "evil build/n/.git/config"  # the scan has disarmed it
    subprocess.run(["sh", "-ec", armed], cwd=root, env=environment, check=True, timeout=60)
    (world.place / "ran").unlink(missing_ok=True)
    subprocess.run(["git", "status"], cwd=root, env=environment, check=False, timeout=60)
    assert not (world.place / "ran").exists()


def test_an_index_with_a_path_in_dot_git_is_replaced(world: World) -> None:
    """`git restore .` would write a hook, and run it the next time."""
    hook = world.root / ".git/hooks/post-checkout"
    with world.sandbox.writing():
        content = git(world.root, "hash-object", "-w", "--stdin", feed=b"#!/bin/sh\n").strip()
        entry = index_entry(0o100755, b".git/hooks/post-checkout")
        named = entry.replace(b"\1" * 20, bytes.fromhex(content.decode()))
        (world.root / ".git/index").write_bytes(index_of(1, named))
    assert b".git/hooks" not in git(world.root, "ls-files")
    assert not hook.exists()


def test_a_kept_index_has_the_entries_that_git_reads(tmp_path: Path) -> None:
    """Includes damaged and crafted ones."""
    place = make_repository(tmp_path / "r", {"a": "1\n", "d/b": "2\n", "d/" + "long" * 40: "3\n"})
    make_repository(place / "n", {"c": "1\n"})
    git(place, "add", "n")
    git(place, "commit", "-qm", "x")
    stages = b"".join(b"100644 %s %d\tz\n" % (b"1" * 40, stage) for stage in (1, 2, 3))
    git(place, "update-index", "--index-info", feed=stages)
    write(place, {"later": "1\n"})
    git(place, "add", "--intent-to-add", "later")
    honest, choice = (place / ".git/index").read_bytes(), random.Random(18)
    lengths = [at for at in range(len(honest)) if honest[at : at + 2] in (b"\0\1", b"\0\3", b"\0\xa2")]
    kept = 0
    for number in range(400):
        data = bytearray(honest[:-20])
        for _ in range(choice.randrange(3) if number else 0):
            at = choice.choice([choice.choice(lengths) + choice.randrange(2), choice.randrange(len(data))])
            data[at] = choice.choice([0, 1, 2, 3, 0x40, 0xE0, 0xFF, data[at] ^ 1 << choice.randrange(8)])
        data += hashlib.sha1(data).digest()
        plain = plain_index(bytes(data), name_bytes=20)
        if plain is None:
            assert number, "an honest one is kept"
            continue
        kept += 1
        assert b"TREE" not in plain.data, "where an entry is, no extension says"
        (place / ".git/index").write_bytes(plain.data)
        listed = git(place, "ls-files", "-s", "-z")
        rows = [row.partition(b"\t") for row in listed.split(b"\0")[:-1]]
        assert tuple((os.fsdecode(name), int(facts[:6], 8)) for facts, _, name in rows) == plain.entries
        (place / ".git/index").write_bytes(data)
        original = subprocess.run(
            ["git", "ls-files", "-s", "-z"], cwd=place, capture_output=True, check=False
        )
        assert original.returncode or original.stdout == listed
    assert 40 < kept < 360
    (place / ".git/index").write_bytes(honest)
    git(place, "update-index", "--split-index")
    assert plain_index((place / ".git/index").read_bytes(), name_bytes=20) is None, "entries are elsewhere"


def test_an_index_keeps_its_time_without_its_extensions(tmp_path: Path) -> None:
    """git compares the time of a file with that of the index to detect a change right after `git add`."""
    resource = make_repository(tmp_path / "r", {"a": "1\n"})
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    index = sandbox.root / ".git/index"
    with sandbox.writing():
        write(sandbox.root, {"a": "2\n"})
        git(sandbox.root, "add", "a")
        git(sandbox.root, "commit", "-qm", "x")
        assert b"TREE" in index.read_bytes()
        os.utime(index, (1, 1))
    assert b"TREE" not in index.read_bytes()
    assert index.stat().st_mtime == 1


@pytest.mark.parametrize("fails", ["write", "open", "mkdir"])
def test_planted_code_is_removed_on_a_full_file_system(
    world: World, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = '[core]\n\tfsmonitor = false\n[remote "o"]\n\turl = https://example.org\n'
    inner = make_repository(world.root / "inner", {"b": "1\n"})
    really, place = {"write": os.write, "open": os.open, "mkdir": os.mkdir}[fails], str(world.root.parent)

    def fail(*words: Any, **facts: Any) -> Any:
        making = fails != "open" or (len(words) > 1 and words[1] & os.O_CREAT)
        descriptor = facts.get("dir_fd", words[0] if fails == "write" else None)
        if making and descriptor is not None and place in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really(*words, **facts)

    with pytest.raises(SandboxRefused, match="No space left"), world.sandbox.writing():
        for planted in (world.root, inner):
            write(planted, {".git/config": evil, ".git/hooks/post-checkout": "", ".git/commondir": "/"})
            write(planted, {".git/objects/info/alternates": "/etc\n"})
            (planted / ".git/index").write_bytes(index_of(1, index_entry(0o160000, b"build/n")))
            (planted / ".git/HEAD").unlink()
        shutil.rmtree(world.root / ".git/refs")
        monkeypatch.setattr(os, fails, fail)
        world.sandbox.scan()
    monkeypatch.undo()
    for planted in (world.root, inner):
        config = planted / ".git/config"
        assert not config.exists() or "fsmonitor" not in config.read_text()
        assert not [name for name in ("hooks", "commondir", "index") if (planted / ".git" / name).exists()]
    with world.sandbox.writing():
        world.sandbox.scan()
    git(world.root, "status")


def test_a_partial_write_is_continued(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.write
    config = (world.root / ".git/config").read_bytes()
    with world.sandbox.writing():
        (world.root / ".git/config").write_bytes(config + b"[core]\n\tfsmonitor = false\n")
        monkeypatch.setattr(os, "write", lambda descriptor, data: really(descriptor, data[:7]))
    monkeypatch.undo()
    assert git(world.root, "config", "core.bare") == b"false\n"
    assert b"fsmonitor" not in (world.root / ".git/config").read_bytes()


@pytest.mark.parametrize(
    "refused", ["a deep path", "large rules", "a name that git refuses", "rules that git fails on"]
)
def test_repositories_in_a_refused_tree_are_disarmed(
    world: World, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = make_repository(world.root / "z/inner", {"b": "1\n"})
    git(inner, "config", "core.fsmonitor", "false")
    if refused == "a deep path":
        write(world.root, {"d/" * 203 + "f": ""})
    elif refused == "large rules":
        write(world.root, {f"r{number}/.gitignore": b"#" * 1_000_000 for number in range(35)})
    elif refused == "a name that git refuses":
        write(world.root, {"GIT~1": ""})
    else:
        monkeypatch.setattr(ignore_rules, "_SECONDS", 0.0)
    with pytest.raises(SandboxRefused), world.sandbox.writing():
        world.sandbox.scan()
    assert b"fsmonitor" not in (inner / ".git/config").read_bytes()


def test_repositories_in_place_of_a_submodule_are_disarmed(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "1\n"})
    make_repository(resource / "sub", {"b": "1\n"})
    commit_all(resource)
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    inner = make_repository(sandbox.root / "inner", {"b": "1\n"})
    git(inner, "config", "core.fsmonitor", "false")
    write(sandbox.root, {"sub/file": "1\n"})
    with pytest.raises(SandboxRefused, match="is a submodule"), sandbox.writing():
        sandbox.scan()
    assert b"fsmonitor" not in (inner / ".git/config").read_bytes()


def test_staged_changes_survive_names_that_look_like_extensions(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"link": "1\n", "blink.py": "1\n"})
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    with sandbox.writing():
        write(sandbox.root, {"link": "2\n"})
        git(sandbox.root, "add", "link")
    assert git(sandbox.root, "status", "--porcelain") == b"M  link\n"


@pytest.mark.parametrize(
    "shape", ["gitdir file", "gitdir link", "alternates", "foreign objects", "common directory"]
)
def test_a_git_directory_that_points_elsewhere_is_replaced(world: World, shape: str) -> None:
    if world.sandbox.facts.common_dir is None:
        return  # a directory has no git directory of ours
    with world.sandbox.writing():
        plant(shape, world.root, world.secret, world.other)
    directory = world.root / ".git"
    assert directory.is_dir()
    assert not directory.is_symlink()
    assert not [path for path in directory.rglob("*") if path.is_symlink()]
    assert not (directory / "commondir").exists()
    before = world.outside()
    git(world.root, "checkout", "-q", "-f", "main")
    assert CANARY.encode() not in git(world.root, "log", "--format=%B", "--all")
    assert world.outside() == before


def test_an_unreadable_index_is_replaced(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "1\n"})
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    with sandbox.writing():
        (sandbox.root / ".git/index").write_bytes(b"DIRC\0\0\0\2\0\0\0\1" + b"\0\0\xe0\0" * 60)
    assert git(sandbox.root, "status", "--porcelain") == b""


def test_a_file_that_changed_its_kind_is_not_copied(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "copy").mkdir()
    source, target = (os.open(path, os.O_RDONLY) for path in (tmp_path, tmp_path / "copy"))
    try:
        assert [copy_file(source, target, name) for name in ("pipe", "directory", "gone")] == [None] * 3
    finally:
        os.close(source)
        os.close(target)
    assert not list((tmp_path / "copy").iterdir())


def test_refuses_and_removes_a_tree_of_thousands_of_levels(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "1\n"})
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    descriptor = os.open(sandbox.root, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=descriptor))
    os.close(descriptor)
    with pytest.raises(SandboxRefused, match="the path is longer"):
        sandbox.scan()
    PrivateClone().remove("plan-1", resource, tmp_path / "sandbox")
    assert [path.name for path in (tmp_path / "sandbox").iterdir()] == ["lock"]


def test_an_endless_file_is_not_read_completely(tmp_path: Path) -> None:
    descriptor = os.open("/dev/zero", os.O_RDONLY)
    try:
        assert LooseObjects(tmp_path, "sha1").keep_file(descriptor, 2 << 20) is None
    finally:
        os.close(descriptor)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as another user")
@pytest.mark.parametrize("mode", [0o000, 0o311])
def test_an_inaccessible_directory_hides_no_change(tmp_path: Path, mode: int) -> None:
    """As a user who is bound by permissions."""
    script = """
import os, sys
from pathlib import Path
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
place, mode = Path(sys.argv[1]), int(sys.argv[2])
PrivateClone().create(SandboxRequest("plan-0", place / "other"), place / "first").scan()  # loads all it needs
os.setgid(65534)
os.setuid(65534)
sandbox = PrivateClone().create(SandboxRequest("plan-1", place / "r"), place / "sandbox")
(sandbox.root / "hidden").mkdir()
(sandbox.root / "hidden/x").write_text("1")
(sandbox.root / "hidden").chmod(mode)
(sandbox.root / "d").chmod(mode)
(sandbox.root / ".git").chmod(0o555)
with sandbox.writing():
    print(sorted(sandbox.scan()))
"""
    place = Path(tempfile.mkdtemp(prefix="cleveragents-test-"))
    try:
        make_repository(place / "r", {"d/f": "1\n"})
        for path in (place, *place.rglob("*")):
            os.chown(path, 65534, 65534)
        make_repository(place / "other", {"d/f": "1\n"})
        source = Path(__file__).parents[3] / "src"
        done = subprocess.run(
            [sys.executable, "-c", script, str(place), str(mode)],
            env={"PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": str(source)},
            capture_output=True,
            check=False,
        )
        assert done.stdout == b"['hidden/x']\n", done.stderr.decode()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_git_messages_do_not_reach_an_actor(tmp_path: Path) -> None:
    assert _text(GitFailed("add", CANARY)) == "git add failed"


@pytest.mark.parametrize("below", ["", "d"])
def test_host_git_is_refused_in_a_sandbox(world: World, below: str) -> None:
    inside = world.root / below
    with pytest.raises(SandboxRefused, match="git must not run in a sandbox's files"):
        run_git("status", environment=user_environment(), directory=inside)
    with pytest.raises(SandboxRefused, match="git must not run"):
        run_git("status", environment={**user_environment(), "GIT_DIR": str(world.root / ".git")})
    with pytest.raises(SandboxRefused, match="git must not run"):
        PrivateRepository(world.root.parent / "engine").git("status", work_tree=inside)
    with pytest.raises(SandboxRefused, match="git must not run"):
        BlobReader(inside).read("0" * 40)
    link = world.place / "link"
    link.symlink_to(inside)
    with pytest.raises(SandboxRefused, match="git must not run"):
        find_resource(link)


def test_objects_with_a_wrong_hash_are_rejected(tmp_path: Path) -> None:
    """An object may hold any content under any name; the index is shared by all plans of a repository."""
    resource = make_repository(tmp_path / "r", {"a.py": "def honest(): ...\n"})
    forged = zlib.compress(b"blob 18\0def forged(): ...\n")
    name = hashlib.sha1(b"blob 18\0def honest(): ...\n").hexdigest()
    path = resource / ".git/objects" / name[:2] / name[2:]
    path.chmod(0o644)
    path.write_bytes(forged)
    (resource / "a.py").unlink()
    with SqliteCodeIndex(tmp_path / "index").open(CodePlace(resource, "HEAD")) as snapshot:
        with pytest.raises(SourceChanged):
            snapshot.text("a.py")
        assert any("does not have their contents" in note for note in snapshot.status.notes)
