"""The contract of every sandbox, for both strategies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleveragents.core.change import EXECUTABLE, REGULAR, SYMLINK, Difference, FileState
from cleveragents.core.errors import SandboxBusy, SandboxMissing, SandboxRefused
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes.directory_copy import DirectoryCopy
from cleveragents.sandboxes.git_sandbox import Sandbox
from cleveragents.sandboxes.ports import SandboxRequest, SandboxStrategy
from cleveragents.sandboxes.private_clone import PrivateClone
from tests.sandbox_resources import fingerprint, git, make_repository, write

ODD = 'a dir/späce \n\t"q" \':(x)*.txt'
NOT_UNICODE = os.fsdecode(b"bytes-\xff.txt")
FILES: dict[str, str | bytes] = {
    "README.md": "# Read me\n",
    "src/main.py": "print('hello')\n",
    "src/deep/er/data.bin": bytes(range(256)) * 9,
    ODD: "odd\n",
    NOT_UNICODE: "not unicode\n",
    ".gitignore": "*.log\nbuild/\n",
}


@dataclass
class Made:
    """A sandbox and its inputs."""

    sandbox: Sandbox
    strategy: SandboxStrategy
    resource: Path
    directory: Path


def make_resource(strategy: SandboxStrategy, place: Path) -> Path:
    if strategy.name == "private_clone":
        resource = make_repository(place, {"README.md": "# An older one\n", "gone.txt": "gone\n"})
        (resource / "gone.txt").unlink()
    else:
        resource = place
        resource.mkdir(parents=True)
    write(resource, FILES)
    (resource / "run.sh").write_text("#!/bin/sh\n")
    (resource / "run.sh").chmod(0o755)
    (resource / "link").symlink_to("src/main.py")
    (resource / "dangling").symlink_to("/nowhere/at all")
    return resource


@pytest.fixture(params=[PrivateClone, DirectoryCopy], ids=["private_clone", "directory_copy"])
def strategy(request: pytest.FixtureRequest) -> SandboxStrategy:
    make: Callable[[], SandboxStrategy] = request.param
    return make()


@pytest.fixture
def made(strategy: SandboxStrategy, tmp_path: Path) -> Iterator[Made]:
    resource = make_resource(strategy, tmp_path / "resource")
    directory = tmp_path / "sandboxes" / "plan-1"
    sandbox = strategy.create(SandboxRequest("plan-1", resource), directory)
    yield Made(sandbox, strategy, resource, directory)
    strategy.remove("plan-1", resource, directory)


def tracked(root: Path) -> dict[str, str]:
    return fingerprint(root, but=(".git",)) | {".gitignore": fingerprint(root)[".gitignore"]}


def test_has_the_users_files_including_uncommitted_and_untracked_ones(made: Made) -> None:
    assert tracked(made.sandbox.root) == tracked(made.resource)
    assert made.sandbox.plan_id == "plan-1"
    assert made.sandbox.scan() == {}


def test_base_states_returns_the_original_states(made: Made) -> None:
    (made.sandbox.root / "run.sh").unlink()
    states = made.sandbox.base_states(
        ["run.sh", "link", ODD, NOT_UNICODE, "src", "no such", ".git/config", ".."]
    )
    assert {path: state.mode if state else None for path, state in states.items()} == {
        "run.sh": EXECUTABLE,
        "link": SYMLINK,
        ODD: REGULAR,
        NOT_UNICODE: REGULAR,
        "src": None,
        "no such": None,
        ".git/config": None,
        "..": None,
    }
    odd = states[ODD]
    assert odd is not None
    assert made.sandbox.content(odd.content) == b"odd\n"


def test_base_states_handles_more_paths_than_a_command_line(made: Made) -> None:
    wanted = [f"{'x' * 200}/{n}" for n in range(1500)] + ["README.md"]
    states = made.sandbox.base_states(wanted)
    assert len(states) == 1501
    assert states["README.md"] is not None


def change_everything(root: Path) -> None:
    write(
        root, {"README.md": "changed\n", "new/one.txt": "new\n", os.fsdecode(b"new\xfe"): "n\n", "empty": ""}
    )
    (root / "src/deep/er/data.bin").unlink()
    (root / ODD).rename(root / "moved")
    (root / "run.sh").chmod(0o644)
    (root / "src/main.py").chmod(0o755)
    (root / "link").unlink()
    (root / "link").symlink_to("README.md")
    (root / "dangling").unlink()
    (root / "dangling").write_text("a file now\n")


def test_a_scan_finds_every_kind_of_change_and_state_of_agrees_with_it(made: Made) -> None:
    root = made.sandbox.root
    change_everything(root)
    found = made.sandbox.scan()
    assert set(found) == {
        "README.md",
        "new/one.txt",
        os.fsdecode(b"new\xfe"),
        "empty",
        "src/deep/er/data.bin",
        ODD,
        "moved",
        "run.sh",
        "src/main.py",
        "link",
        "dangling",
    }
    assert {path: made.sandbox.state_of(path) for path in found} == {
        path: step.after for path, step in found.items()
    }
    assert made.sandbox.base_states(found) == {path: step.before for path, step in found.items()}
    link, moved, gone = found["link"].after, found["moved"].after, found["src/deep/er/data.bin"].after
    assert link is not None
    assert made.sandbox.content(link.content) == b"README.md"
    assert link.mode == SYMLINK
    assert moved == found[ODD].before
    assert gone is None


def test_state_of_returns_none_for_other_kinds(made: Made) -> None:
    root = made.sandbox.root
    os.mkfifo(root / "pipe")
    (root / "out").symlink_to(made.resource)
    assert made.sandbox.state_of("out/README.md") is None, "a link led out of the sandbox"
    for path in ("pipe", "src", "no/such", "README.md/below", "../lock", ".git/config", "/etc/passwd", ""):
        assert made.sandbox.state_of(path) is None


def test_state_of_a_large_file_agrees_with_a_scan(made: Made) -> None:
    (made.sandbox.root / "large").write_bytes(os.urandom(3_000_000))
    state = made.sandbox.state_of("large")
    assert state is not None
    assert made.sandbox.content(state.content) == (made.sandbox.root / "large").read_bytes()
    assert made.sandbox.scan()["large"].after == state


def test_detects_a_change_of_the_same_size_in_the_same_second(made: Made) -> None:
    for text in ("# Read ME\n", "# READ me\n", "# read me\n"):
        (made.sandbox.root / "README.md").write_text(text)
        after = made.sandbox.scan()["README.md"].after
        assert after is not None
        assert made.sandbox.content(after.content) == text.encode()


def test_ignored_files_are_skipped_unless_in_the_base(made: Made) -> None:
    root = made.sandbox.root
    write(
        root, {"x.log": "x", "build/out": "o", ".gitignore": "*.log\nbuild/\nREADME.md\n", "src/main.py": "m"}
    )
    (root / "README.md").write_text("still recorded\n")
    assert set(made.sandbox.scan()) == {".gitignore", "README.md", "src/main.py"}
    asked = ["x.log", "build/out", "README.md", "src/main.py", "../etc", ".git/config"]
    assert made.sandbox.ignored(asked) == {"x.log", "build/out"}
    assert made.sandbox.ignored([]) == frozenset()


def test_created_ignored_files_are_hidden_and_restored(made: Made) -> None:
    root = made.sandbox.root
    write(root, {"x.log": "x", "build/out": "o", "src/y.log": "y", "kept.log": "recorded", "new.txt": "n"})
    (root / "build" / NOT_UNICODE).touch()
    named = ("build/", "src/y.log", "x.log")
    assert made.sandbox.unapplied(["kept.log", "new.txt"]).ignored == named
    with made.sandbox.writing():
        pass  # its index loses its extensions
    before = fingerprint(root)
    with made.sandbox.writing(), made.sandbox.without_ignored(["kept.log", "new.txt"]) as entries:
        assert entries == named
        away = {"build", "build/out", f"build/{NOT_UNICODE}", "src/y.log", "x.log"}
        assert fingerprint(root).keys() == before.keys() - away
        write(root, {"x.log": "another", "z.log": "z"})
    assert fingerprint(root) == before
    made.sandbox.count_as_set_up()
    assert made.sandbox.unapplied().ignored == ()


def test_created_repositories_are_listed_while_they_exist(made: Made) -> None:
    sandbox, root = made.sandbox, made.sandbox.root
    assert sandbox.unapplied().repositories == ()
    write(root, {"lib/.git/HEAD": "ref: x\n", "lib/f": "f", "tree/.git": "gitdir: ../lib\n", "tree/g": "g"})
    write(root, {"build/.git/HEAD": "ref: ignored\n"})
    own = []
    if made.strategy.name == "directory_copy":
        write(root, {".git/HEAD": "ref: x\n"})
        own = ["."]
    assert sandbox.unapplied().repositories == (*own, "lib", "tree")
    assert {"lib/f", "tree/g"} <= set(sandbox.scan())
    assert sandbox.unapplied().repositories == (*own, "lib", "tree"), "a scan removes what leads elsewhere"
    shutil.rmtree(root / "tree")
    assert sandbox.unapplied().repositories == (*own, "lib")


def test_the_tree_of_all_states_equals_the_files(made: Made, tmp_path: Path) -> None:
    change_everything(made.sandbox.root)
    states = {path: step.after for path, step in made.sandbox.scan().items()}
    tree = made.sandbox.tree(states)
    assert tree == captured(made, tmp_path / "copy")
    assert made.sandbox.tree({}) == made.sandbox.base
    listed = made.sandbox.diff(tree, options=("--name-only", "-z", "--no-renames"))
    assert set(os.fsdecode(listed).split("\0")[:-1]) == set(states)
    one = made.sandbox.diff(tree, paths=("new/one.txt",))
    assert b"+new\n" in one
    assert b"README" not in one


def test_a_tree_that_vanished_from_the_store_is_written_again(made: Made) -> None:
    (made.sandbox.root / "new.txt").write_text("new\n")
    states = {path: step.after for path, step in made.sandbox.scan().items()}
    tree = made.sandbox.tree(states)
    stored = made.sandbox.place.engine / "objects" / tree[:2] / tree[2:]
    stored.unlink()
    assert made.sandbox.tree(states) == tree
    assert stored.exists()


def test_changes_of_a_tree_are_those_that_created_it(made: Made) -> None:
    change_everything(made.sandbox.root)
    found = made.sandbox.scan()
    assert made.sandbox.changes_of(made.sandbox.tree({p: step.after for p, step in found.items()})) == found
    assert made.sandbox.changes_of(made.sandbox.base) == {}


def test_contents_are_merged_unless_they_conflict(made: Made) -> None:
    names = []
    for text in ("1\n2\n3\n4\n5\n", "one\n2\n3\n4\n5\n", "1\n2\n3\n4\nfive\n", "uno\n2\n3\n4\n5\n"):
        (made.sandbox.root / "x").write_text(text)
        state = made.sandbox.state_of("x")
        assert state is not None
        names.append(state.content)
    ancestor, ours, theirs, other = names
    merged = made.sandbox.merge_content(ancestor, ours, theirs)
    assert merged is not None
    assert made.sandbox.content(merged) == b"one\n2\n3\n4\nfive\n"
    assert made.sandbox.merge_content(ancestor, ours, other) is None


def test_files_and_directories_can_replace_each_other(made: Made) -> None:
    root = made.sandbox.root
    (root / "src/main.py").unlink()
    (root / "src/deep/er/data.bin").unlink()
    (root / "src/deep/er").rmdir()
    (root / "src/deep").rmdir()
    (root / "src").rmdir()
    (root / "src").write_text("a file\n")
    (root / "README.md").unlink()
    write(root, {"README.md/inside": "x\n"})
    found = made.sandbox.scan()
    tree = made.sandbox.tree({path: step.after for path, step in found.items()})
    listed = made.sandbox.diff(tree, options=("--name-only", "-z", "--no-renames"))
    assert set(os.fsdecode(listed).split("\0")[:-1]) == set(found)
    made.sandbox.restore({path: step.before for path, step in found.items()})
    assert tracked(root) == tracked(made.resource)
    made.sandbox.restore({path: step.after for path, step in found.items()})
    assert made.sandbox.scan() == found


def test_restore_restores_exactly_the_given_files(made: Made) -> None:
    root = made.sandbox.root
    change_everything(root)
    found = made.sandbox.scan()
    kept = dict(found)
    readme = kept.pop("README.md")
    made.sandbox.restore({path: step.before for path, step in kept.items()})
    assert made.sandbox.scan() == {"README.md": readme}
    assert not (root / "new").exists(), "a directory that restoring emptied is left"
    made.sandbox.restore({"README.md": readme.before})
    assert tracked(root) == tracked(made.resource)


def test_restore_keeps_a_non_empty_directory(made: Made) -> None:
    root = made.sandbox.root
    write(root, {"new/a": "a", "new/b.log": "ignored"})
    found = made.sandbox.scan()
    made.sandbox.restore(dict.fromkeys(found))
    assert (root / "new/b.log").read_text() == "ignored"


def test_restore_does_not_write_through_a_planted_link(made: Made, tmp_path: Path) -> None:
    root, outside = made.sandbox.root, tmp_path / "outside"
    write(outside, {"main.py": "mine\n", "deep/er/data.bin": "mine too\n"})
    states = made.sandbox.base_states(["src/main.py", "src/deep/er/data.bin"])
    (root / "src").rename(root / "elsewhere")
    (root / "src").symlink_to(outside)
    made.sandbox.restore({"src/main.py": None})
    assert (outside / "main.py").read_text() == "mine\n"
    made.sandbox.restore(states)
    assert (outside / "main.py").read_text() == "mine\n"
    assert (outside / "deep/er/data.bin").read_text() == "mine too\n"
    assert not (root / "src").is_symlink()
    assert (root / "src/main.py").read_text() == "print('hello')\n"


@pytest.mark.parametrize("path", ["../outside", "/etc/x", ".git/config", "a/../../b", "a/.GIT/config"])
def test_restore_refuses_invalid_paths(made: Made, path: str) -> None:
    state = made.sandbox.base_states(["README.md"])["README.md"]
    with pytest.raises(SandboxRefused):
        made.sandbox.restore({"README.md": state, path: state})
    with pytest.raises(SandboxRefused):
        made.sandbox.restore({path: None})


def test_only_one_call_writes_at_a_time(made: Made) -> None:
    again = made.strategy.open("plan-1", made.resource, made.directory)
    with made.sandbox.writing():
        with pytest.raises(SandboxBusy), again.writing():
            raise AssertionError("two write at once")
        assert _other_process_can_write(made) == "SandboxBusy"
    assert _other_process_can_write(made) == "wrote"
    with again.writing():
        pass


def _other_process_can_write(made: Made) -> str:
    program = (
        "import sys; from pathlib import Path\n"
        "from cleveragents.sandboxes.private_clone import PrivateClone\n"
        "from cleveragents.core.errors import SandboxBusy\n"
        "sandbox = PrivateClone().open('plan-1', Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "try:\n    with sandbox.writing(): print('wrote')\n"
        "except SandboxBusy: print('SandboxBusy')\n"
    )
    command = [sys.executable, "-c", program, str(made.resource), str(made.directory)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_writer_waits_for_the_previous_one(made: Made) -> None:
    entered = threading.Event()
    order: list[str] = []

    def second() -> None:
        entered.set()
        with made.sandbox.writing(timeout_seconds=60):
            order.append("second")

    with made.sandbox.writing():
        thread = threading.Thread(target=second)
        thread.start()
        entered.wait(60)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]


def test_any_process_opens_the_same_sandbox(made: Made) -> None:
    (made.sandbox.root / "README.md").write_text("changed\n")
    again = made.strategy.open("plan-1", made.resource, made.directory)
    assert again.base == made.sandbox.base
    assert again.notes == made.sandbox.notes
    assert again.readable == made.sandbox.readable
    assert all(path.is_dir() for path in again.readable)
    assert again.scan() == made.sandbox.scan()


def test_concurrent_scans_do_not_interfere(made: Made) -> None:
    change_everything(made.sandbox.root)
    expected = made.sandbox.scan()
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(made.sandbox.scan())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_a_lock_of_a_killed_git_does_not_block(made: Made) -> None:
    (made.directory / "engine" / "index.lock").touch()
    (made.sandbox.root / "README.md").write_text("changed\n")
    assert set(made.sandbox.scan()) == {"README.md"}


def test_files_of_a_nested_repository_are_recorded(made: Made) -> None:
    root = made.sandbox.root
    make_repository(root / "nested", {"a.txt": "a\n", "sub/b.txt": "b\n", "x.log": "ignored\n"})
    make_repository(root / "nested" / "inner", {"c.txt": "c\n"})
    make_repository(root / "unborn", {})
    write(root, {"unborn/d.txt": "d\n"})
    found = made.sandbox.scan()
    assert set(found) == {"nested/a.txt", "nested/sub/b.txt", "nested/inner/c.txt", "unborn/d.txt"}
    assert made.sandbox.state_of("nested/a.txt") == found["nested/a.txt"].after
    (root / "nested/a.txt").write_text("more\n")
    assert made.sandbox.scan()["nested/a.txt"] != found["nested/a.txt"]
    made.sandbox.restore(dict.fromkeys(found))
    assert made.sandbox.scan() == {}


def test_an_unrecordable_file_is_an_error(made: Made) -> None:
    write(made.sandbox.root, {"a/.GIT/x": "git refuses such a name\n"})
    with pytest.raises(SandboxRefused, match="cannot record"):
        made.sandbox.scan()


def test_removal_includes_read_only_files(made: Made) -> None:
    write(made.sandbox.root, {"cache/deep/file": "x"})
    (made.sandbox.root / "cache/deep").chmod(0o500)
    (made.sandbox.root / "cache").chmod(0o000)
    for _ in range(2):
        made.strategy.remove("plan-1", made.resource, made.directory)
    assert [path.name for path in made.directory.iterdir()] == ["lock"]
    with pytest.raises(SandboxMissing):
        made.strategy.open("plan-1", made.resource, made.directory)


def test_a_sandbox_whose_files_are_gone_says_so(made: Made) -> None:
    (made.sandbox.root).rename(made.directory / "elsewhere")
    for use in (
        made.sandbox.scan,
        lambda: made.sandbox.state_of("README.md"),
        lambda: made.sandbox.restore({}),
    ):
        with pytest.raises(SandboxMissing):
            use()


def test_the_resource_stays_unchanged(strategy: SandboxStrategy, tmp_path: Path) -> None:
    resource = make_resource(strategy, tmp_path / "resource")
    pin = (".git/refs/cleveragents",)
    before = fingerprint(resource, but=pin)
    directory = tmp_path / "sandbox"
    sandbox = strategy.create(SandboxRequest("plan-1", resource), directory)
    change_everything(sandbox.root)
    found = sandbox.scan()
    sandbox.diff(sandbox.tree({path: step.after for path, step in found.items()}))
    sandbox.restore({path: step.before for path, step in found.items()})
    assert fingerprint(resource, but=pin) == before
    strategy.remove("plan-1", resource, directory)
    # git keeps the empty directory of refs, which no git command shows.
    after = fingerprint(resource)
    assert after.pop(".git/refs/cleveragents", "directory") == "directory"
    assert after == before


NAMES = st.sampled_from(["a", "b.txt", "d/a", "d/e/f", "ü ö", "x.log", "d/x y", os.fsdecode(b"\xe9")])
EDITS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.sampled_from(["", "one\n", "two\n", "no newline", "bin\0\x01"])),
    st.tuples(st.just("delete"), NAMES, st.just("")),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("chmod"), NAMES, st.sampled_from(["644", "755"])),
    st.tuples(st.just("symlink"), NAMES, st.sampled_from(["a", "/no/where", "d"])),
)


def edit(root: Path, deed: str, name: str, detail: str) -> None:
    path = root / name
    try:
        if deed == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(detail)
        elif deed == "delete":
            path.unlink()
        elif deed == "rename":
            (root / detail).parent.mkdir(parents=True, exist_ok=True)
            path.rename(root / detail)
        elif deed == "chmod":
            path.chmod(int(detail, 8))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(detail)
    except OSError:
        return  # the file system refused the edit


@pytest.fixture(scope="module", params=[PrivateClone, DirectoryCopy], ids=["private_clone", "directory_copy"])
def playground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """One sandbox for many sequences of edits: each starts from the previous result."""
    place = tmp_path_factory.mktemp("playground")
    strategy: SandboxStrategy = request.param()
    resource = make_resource(strategy, place / "resource")
    sandbox = strategy.create(SandboxRequest("plan-1", resource), place / "sandbox")
    yield Made(sandbox, strategy, resource, place / "sandbox")
    strategy.remove("plan-1", resource, place / "sandbox")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EDITS, max_size=8))
def test_a_scan_agrees_with_git_after_any_edits(playground: Made, edits: list[tuple[str, str, str]]) -> None:
    sandbox, root = playground.sandbox, playground.sandbox.root
    before = sandbox.scan()
    for deed, name, detail in edits:
        edit(root, deed, name, detail)
    found = sandbox.scan()
    after = {path: step.after for path, step in found.items()}
    tree = captured(playground, playground.directory / "copy")
    assert sandbox.tree(after) == tree
    raw = sandbox.diff(tree, options=("--raw", "-z", "--no-renames", "--no-abbrev"))
    assert _differences(raw) == found
    assert {path: sandbox.state_of(path) for path in found} == after
    # And back to the start, by the two scans alone.
    back = {path: before[path].after if path in before else found[path].before for path in {*before, *found}}
    sandbox.restore(back)
    assert sandbox.scan() == before


def captured(made: Made, copy: Path) -> str:
    """Return git's own capture of a copy of the files: git does not run in a sandbox."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(made.sandbox.root, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    fresh = copy.with_name("fresh-index")
    fresh.unlink(missing_ok=True)
    return PrivateRepository(made.directory / "engine").capture(copy, fresh)


def _differences(raw: bytes) -> dict[str, Difference]:
    fields = os.fsdecode(raw).split("\0")[:-1]
    found = {}
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = facts[1:].split(" ")
        found[path] = Difference(_state(old_mode, old), _state(new_mode, new))
    return found


def _state(mode: str, name: str) -> FileState | None:
    return FileState(int(mode, 8), name) if int(mode, 8) else None


def test_git_commands_in_the_sandbox_do_not_affect_a_scan(made: Made) -> None:
    """Whatever a command does to the sandbox's own .git, we never read it."""
    root = made.sandbox.root
    if made.strategy.name == "directory_copy":
        git(root, "init", "-q")
    ran = made.directory / "ran"
    write(root, {".gitattributes": "* filter=evil diff=evil merge=evil\n", "README.md": "changed\n"})
    program = f"touch {ran}; cat"
    for name, value in (
        ("filter.evil.clean", program),
        ("filter.evil.smudge", program),
        ("diff.evil.command", program),
        ("diff.evil.textconv", program),
        ("core.fsmonitor", program),
        ("core.excludesFile", str(made.directory / "everything")),
    ):
        git(root, "config", name, value)
    (made.directory / "everything").write_text("*\n")
    hook = root / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {ran}\n")
    hook.chmod(0o755)
    (root / ".git" / "index").unlink(missing_ok=True)
    found = made.sandbox.scan()
    assert set(found) == {".gitattributes", "README.md"}
    made.sandbox.diff(made.sandbox.tree({path: step.after for path, step in found.items()}))
    assert made.sandbox.state_of("README.md") == found["README.md"].after
    made.sandbox.restore({path: step.before for path, step in found.items()})
    assert made.sandbox.scan() == {}
    assert not ran.exists()
