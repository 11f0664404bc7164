"""The result of a setup is stored once, copied completely, and limited in size."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from cleveragents.core.actions.model import Setup
from cleveragents.core.errors import PolicyDenied
from cleveragents.core.json_value import JsonValue
from cleveragents.core.policy import Capability, Verdict, profile
from cleveragents.core.tool import CallState, ToolCall
from cleveragents.plans.checks import SandboxSetup
from cleveragents.sandboxes.ports import SetupInputs
from cleveragents.sandboxes.setup_cache import SetupCache, content_digest
from tests.sandbox_resources import fingerprint, write


@pytest.fixture
def cache(tmp_path: Path) -> SetupCache:
    return SetupCache(tmp_path / "setups")


def make_tree(place: Path, *, set_up: bool = False) -> Path:
    """Create a sandbox's tree in its own directory, with the result of a setup command."""
    tree = place / "tree"
    write(tree, {"requirements.lock": "x==1\n"})
    if set_up:
        program = f"#!{tree}/.venv/bin/python\nprint('hello')\n"
        write(tree, {".venv/bin/tool": program, ".venv/lib/x.py": f"HERE = '{tree}'\n"})
        write(tree, {".venv/lib/here.pth": f"{tree}/src\n", ".venv/pyvenv.cfg": f"command = {tree}\n"})
        write(tree, {".venv/bin/binary": b"\0" + str(tree).encode(), "web/node_modules/a/index.js": "1\n"})
        (tree / ".venv/bin/tool").chmod(0o555)
        (tree / ".venv/bin/python").symlink_to("/usr/bin/python3")
    return tree


PATHS = (".venv", "web/node_modules")


def test_a_cached_environment_is_adapted_to_the_next_sandbox(cache: SetupCache, tmp_path: Path) -> None:
    one, two = make_tree(tmp_path / "one", set_up=True), make_tree(tmp_path / "two")
    assert not cache.take("k", two, PATHS)
    cache.keep("k", one, PATHS)
    cache.keep("k", one, PATHS)
    assert cache.take("k", two, PATHS)
    assert (two / ".venv/bin/tool").read_text() == f"#!{two}/.venv/bin/python\nprint('hello')\n"
    assert (two / ".venv/lib/here.pth").read_text() == f"{two}/src\n"
    assert (two / ".venv/pyvenv.cfg").read_text() == f"command = {two}\n"
    assert os.access(two / ".venv/bin/tool", os.X_OK)
    assert (two / ".venv/bin/python").readlink() == Path("/usr/bin/python3")
    # Binary programs and modules stay unchanged.
    assert (two / ".venv/bin/binary").read_bytes() == (one / ".venv/bin/binary").read_bytes()
    assert (two / "web/node_modules/a/index.js").read_text() == "1\n"
    assert [path.name for path in two.parent.iterdir()] == ["tree"], "a draft is left"


def test_existing_files_are_not_replaced(cache: SetupCache, tmp_path: Path) -> None:
    one, two = make_tree(tmp_path / "one", set_up=True), make_tree(tmp_path / "two")
    cache.keep("k", one, PATHS)
    assert cache.directory.stat().st_mode & 0o077 == 0, "others on the machine could read it"
    write(two, {".venv/mine": "x"})
    assert not cache.take("k", two, PATHS)
    assert fingerprint(two / ".venv").keys() == {"mine"}
    assert not cache.take("k", make_tree(tmp_path / "three"), (".venv",)), "other paths are another setup"


def test_an_incomplete_environment_is_not_stored(cache: SetupCache, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "one", set_up=True)
    os.mkfifo(tree / ".venv/pipe")
    cache.keep("k", tree, PATHS)
    assert not cache.take("k", make_tree(tmp_path / "two"), PATHS)
    (tree / ".venv/pipe").unlink()
    cache.keep("k", tree, PATHS)
    assert cache.take("k", make_tree(tmp_path / "three"), PATHS)


def test_links_lead_neither_out_of_the_tree_nor_into_it(cache: SetupCache, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, {"private": "p\n"})
    one, two = make_tree(tmp_path / "one"), make_tree(tmp_path / "two")
    (one / "web").symlink_to(outside)
    (one / ".venv").symlink_to(outside)
    cache.keep("k", one, (".venv", "web/private", "../x"))
    (two / "web").symlink_to(outside)
    assert cache.take("k", two, (".venv", "web/private", "../x"))
    assert (two / ".venv").is_symlink(), "the link itself, not what it leads to"
    assert fingerprint(outside).keys() == {"private"}
    write(make_tree(tmp_path / "three"), {"web/private": "new\n"})
    cache.keep("m", tmp_path / "three" / "tree", ("web/private",))
    assert not cache.take("m", two, ("web/private",))
    assert (outside / "private").read_text() == "p\n"


def test_the_least_recently_used_entry_is_removed_first(tmp_path: Path) -> None:
    cache = SetupCache(tmp_path / "setups", limit_bytes=250_000)
    for number, key in enumerate("abc"):
        tree = make_tree(tmp_path / key)
        write(tree, {".venv/data": os.urandom(100_000)})
        cache.keep(key, tree, (".venv",))
        os.utime(cache.directory / key, ns=(number, number))
        if key == "b":
            assert cache.take("a", make_tree(tmp_path / "user"), (".venv",))
    assert {path.name for path in cache.directory.iterdir()} == {"lock", "secret", "a", "c"}


def test_nothing_is_evicted_during_a_copy(tmp_path: Path) -> None:
    cache = SetupCache(tmp_path / "setups", limit_bytes=1)
    cache.keep("a", make_tree(tmp_path / "a", set_up=True), PATHS)
    with cache._locked(1):  # a shared lock, as `take` holds it
        cache.keep("b", make_tree(tmp_path / "b", set_up=True), PATHS)
        assert (cache.directory / "a").exists()
    cache.keep("c", make_tree(tmp_path / "c", set_up=True), PATHS)
    assert {path.name for path in cache.directory.iterdir()} == {"lock", "secret", "c"}


def test_concurrent_keeps_and_takes_are_safe(cache: SetupCache, tmp_path: Path) -> None:
    trees = [make_tree(tmp_path / str(number), set_up=True) for number in range(6)]
    takers = [make_tree(tmp_path / f"taker-{number}") for number in range(6)]
    ready = threading.Barrier(12)
    whole: list[bool] = []

    def keep(tree: Path) -> None:
        ready.wait(60)
        cache.keep("k", tree, PATHS)

    def take(tree: Path) -> None:
        ready.wait(60)
        if cache.take("k", tree, PATHS):
            whole.append(fingerprint(tree / ".venv").keys() == fingerprint(trees[0] / ".venv").keys())

    threads = [threading.Thread(target=keep, args=(tree,)) for tree in trees]
    threads += [threading.Thread(target=take, args=(tree,)) for tree in takers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(whole)
    assert {path.name for path in cache.directory.iterdir()} == {"lock", "secret", "k"}


def test_an_entry_is_copied_completely_or_not_at_all(cache: SetupCache, tmp_path: Path) -> None:
    one, two = make_tree(tmp_path / "one", set_up=True), make_tree(tmp_path / "two")
    cache.keep("k", one, PATHS)
    write(two, {"web/node_modules/mine": "x"})
    assert not cache.take("k", two, PATHS)
    assert not (two / ".venv").exists()


def altered_program(entry: Path) -> None:
    (entry / "files/.venv/lib/x.py").write_text("import poison\n")


def added_file(entry: Path) -> None:
    (entry / "files/.venv/lib/sitecustomize.py").write_text("import poison\n")


def removed_file(entry: Path) -> None:
    (entry / "files/.venv/lib/x.py").unlink()


def changed_mode(entry: Path) -> None:
    (entry / "files/.venv/lib/x.py").chmod(0o777)


def redirected_link(entry: Path) -> None:
    (entry / "files/.venv/bin/python").unlink()
    (entry / "files/.venv/bin/python").symlink_to("/tmp/poison")


def matching_digest(entry: Path) -> None:
    """Alter the content and the digest, without the cache's secret."""
    altered_program(entry)
    facts = json.loads((entry / "entry.json").read_text())
    facts["digest"] = content_digest(entry / "files", PATHS)
    (entry / "entry.json").write_text(json.dumps(facts))


def other_names(entry: Path) -> None:
    """Alter the list of files in which a path is replaced."""
    facts = json.loads((entry / "entry.json").read_text())
    (entry / "entry.json").write_text(json.dumps({**facts, "naming": [".venv/lib/x.py"]}))


def other_entry(entry: Path) -> None:
    """Copy a genuine entry of a hostile branch to another key."""
    hostile = make_tree(entry.parent.parent / "hostile", set_up=True)
    write(hostile, {".venv/lib/x.py": "import poison\n"})
    SetupCache(entry.parent).keep("h", hostile, PATHS)
    shutil.rmtree(entry)
    (entry.parent / "h").rename(entry)


def half_written(entry: Path) -> None:
    (entry / "entry.json").write_text('{"paths": [')


def no_entry_of_ours(entry: Path) -> None:
    (entry / "entry.json").write_text("[]")


def no_facts(entry: Path) -> None:
    (entry / "entry.json").unlink()


ALTERATIONS = [
    *(altered_program, added_file, removed_file, changed_mode, redirected_link, matching_digest),
    *(other_names, other_entry, half_written, no_entry_of_ours, no_facts),
]


@pytest.mark.parametrize("alter", ALTERATIONS)
def test_an_altered_entry_is_replaced(
    cache: SetupCache, tmp_path: Path, alter: Callable[[Path], None]
) -> None:
    one, two = make_tree(tmp_path / "one", set_up=True), make_tree(tmp_path / "two")
    cache.keep("k", one, PATHS)
    alter(cache.directory / "k")
    assert not cache.take("k", two, PATHS)
    assert fingerprint(two).keys() == {"requirements.lock"}
    assert [path.name for path in two.parent.iterdir()] == ["tree"], "a draft is left"
    cache.keep("k", one, PATHS)
    assert cache.take("k", two, PATHS)
    assert (two / ".venv/lib/x.py").read_text() == f"HERE = '{one}'\n"
    assert {path.name for path in cache.directory.iterdir()} == {"lock", "secret", "k"}


def test_changes_to_an_environment_do_not_reach_the_entry(cache: SetupCache, tmp_path: Path) -> None:
    """Neither the creating nor a receiving sandbox shares a file with it, not even a hard link."""
    one, two = make_tree(tmp_path / "one", set_up=True), make_tree(tmp_path / "two")
    os.link(one / ".venv/lib/x.py", one / ".venv/lib/same.py")
    cache.keep("k", one, PATHS)
    assert cache.take("k", two, PATHS)
    before = fingerprint(cache.directory / "k")
    for tree in (one, two):
        for path in (tree / ".venv").rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.chmod(0o755)
                path.write_text("poison")
    assert fingerprint(cache.directory / "k") == before
    assert cache.take("k", make_tree(tmp_path / "three"), PATHS)


def test_concurrent_starts_share_one_secret(tmp_path: Path) -> None:
    ready = threading.Barrier(8)
    secrets: set[bytes] = set()

    def ask() -> None:
        ready.wait(60)
        secrets.add(SetupCache(tmp_path / "setups")._secret())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(secrets) == 1
    assert [path.name for path in (tmp_path / "setups").iterdir()] == ["secret"]
    assert (tmp_path / "setups/secret").stat().st_mode & 0o077 == 0


class Execution:
    """The calls of a run in which only the setup is requested."""

    def __init__(self, policy: str) -> None:
        self._policy = profile(policy)
        self.noted: list[str] = []

    def earlier(self, step: str) -> None:
        return None

    def verdict(self, capability: Capability) -> Verdict:
        return self._policy.verdict(capability)

    def command_inputs(self, argv: tuple[str, ...]) -> Mapping[str, JsonValue]:
        return {"argv": argv}

    def note(self, step: str, tool: str, arguments: object) -> ToolCall:
        self.noted.append(step)
        return ToolCall("p", 1, "c", tool, {}, CallState.ENDED, datetime.now(UTC))

    def call(self, request: object) -> ToolCall:
        raise PolicyDenied("setup", "ci", "install")


def test_a_denied_setup_is_not_taken_from_the_cache(cache: SetupCache, tmp_path: Path) -> None:
    tree, setup = make_tree(tmp_path / "one"), Setup("make", paths=(".venv",))
    key = cache.key(SetupInputs("p", (".venv",), {"argv": ("/bin/sh", "-c", "make")}), tree)
    assert key is not None
    cache.keep(key, make_tree(tmp_path / "two", set_up=True), (".venv",))
    sandbox = SimpleNamespace(root=tree, plan_id="plan")
    with pytest.raises(PolicyDenied):
        SandboxSetup(cache).prepare(setup, sandbox, Execution("ci"), project="p")
    allowed = Execution("supervised")
    SandboxSetup(cache).prepare(setup, sandbox, allowed, project="p")
    assert allowed.noted == ["setup"]
