"""What a setup made is kept once, given whole, and bounded."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cleveragents.application.ports.sandboxes import SandboxRequest
from cleveragents.infrastructure.sandbox.private_clone import PrivateClone
from cleveragents.infrastructure.sandbox.setup_cache import SetupCache
from tests.sandbox_resources import fingerprint, make_repository, write

COMMAND = "python -m venv .venv"


@pytest.fixture
def cache(tmp_path: Path) -> SetupCache:
    return SetupCache(tmp_path / "setups")


def make_tree(place: Path, *, set_up: bool = False) -> Path:
    """A sandbox's tree, in a directory of its own; with what the setup command would make."""
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


def test_a_key_follows_the_command_and_the_content_of_its_files(cache: SetupCache, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "one")
    key = cache.key(COMMAND, tree, ["requirements.lock"])
    assert cache.key(COMMAND, make_tree(tmp_path / "one"), ["requirements.lock"]) == key
    assert cache.key("other", tree, ["requirements.lock"]) != key
    assert cache.key(COMMAND, tree, ["requirements.lock", "missing"]) != key
    write(tree, {"requirements.lock": "x==2\n"})
    assert cache.key(COMMAND, tree, ["requirements.lock"]) != key


def test_a_key_is_not_taken_from_outside_the_tree(cache: SetupCache, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "one")
    write(tmp_path / "outside", {"secret": "1\n"})
    (tree / "link").symlink_to(tmp_path / "outside" / "secret")
    (tree / "dir").symlink_to(tmp_path / "outside")
    (tree / "sub").mkdir()
    files = ["link", "dir/secret", "../../outside/secret", "sub"]
    key = cache.key(COMMAND, tree, files)
    write(tmp_path / "outside", {"secret": "2\n"})
    assert cache.key(COMMAND, tree, files) == key
    (tree / "link").unlink()
    (tree / "link").symlink_to("elsewhere")
    assert cache.key(COMMAND, tree, files) != key


def test_what_was_kept_is_given_to_the_next_sandbox_and_names_its_place(
    cache: SetupCache, tmp_path: Path
) -> None:
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
    # Programs that are not text, and modules, are left as they are.
    assert (two / ".venv/bin/binary").read_bytes() == (one / ".venv/bin/binary").read_bytes()
    assert (two / "web/node_modules/a/index.js").read_text() == "1\n"
    assert [path.name for path in two.parent.iterdir()] == ["tree"], "a draft is left"


def test_what_is_in_a_sandbox_already_is_not_replaced(cache: SetupCache, tmp_path: Path) -> None:
    one, two = make_tree(tmp_path / "one", set_up=True), make_tree(tmp_path / "two")
    cache.keep("k", one, PATHS)
    assert cache.directory.stat().st_mode & 0o077 == 0, "others on the machine could read it"
    write(two, {".venv/mine": "x"})
    assert not cache.take("k", two, PATHS)
    assert fingerprint(two / ".venv").keys() == {"mine"}
    assert not cache.take("k", make_tree(tmp_path / "three"), (".venv",)), "other paths are another setup"


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


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = SetupCache(tmp_path / "setups", limit_bytes=250_000)
    for number, key in enumerate("abc"):
        tree = make_tree(tmp_path / key)
        write(tree, {".venv/data": os.urandom(100_000)})
        cache.keep(key, tree, (".venv",))
        os.utime(cache.directory / key, ns=(number, number))
        if key == "b":
            assert cache.take("a", make_tree(tmp_path / "user"), (".venv",))
    assert {path.name for path in cache.directory.iterdir()} == {"lock", "a", "c"}


def test_nothing_is_thrown_away_while_somebody_copies(tmp_path: Path) -> None:
    cache = SetupCache(tmp_path / "setups", limit_bytes=1)
    cache.keep("a", make_tree(tmp_path / "a", set_up=True), PATHS)
    with cache._locked(1):  # a shared lock, as `take` holds it
        cache.keep("b", make_tree(tmp_path / "b", set_up=True), PATHS)
        assert (cache.directory / "a").exists()
    cache.keep("c", make_tree(tmp_path / "c", set_up=True), PATHS)
    assert {path.name for path in cache.directory.iterdir()} == {"lock", "c"}


def test_many_keep_and_take_the_same_at_once(cache: SetupCache, tmp_path: Path) -> None:
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
    assert {path.name for path in cache.directory.iterdir()} == {"lock", "k"}


def test_a_key_is_one_resources_and_without_files_one_bases(cache: SetupCache, tmp_path: Path) -> None:
    """What one repository's setup made is not run by the checks of another."""

    def key(resource: Path, number: int, *files: str) -> str:
        request = SandboxRequest(f"plan-{number}", resource)
        sandbox = PrivateClone().create(request, tmp_path / "sandboxes" / f"{number}")
        return cache.key("sh build.sh", sandbox.root, files)

    one, other = (
        make_repository(tmp_path / name, {"lock": "1\n", "build.sh": f"{name}\n"})
        for name in ("one", "other")
    )
    same = key(one, 1, "lock")
    assert key(other, 2, "lock") != same
    without, missing = key(one, 3), key(one, 4, "no such file")
    write(one, {"build.sh": "changed\n"})
    assert key(one, 5, "lock") == same
    assert key(one, 6) != without
    assert key(one, 7, "no such file") != missing
