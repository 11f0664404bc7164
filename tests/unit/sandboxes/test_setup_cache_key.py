"""The key of a cached environment covers everything that can affect the setup."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cleveragents.processes.bubblewrap import BubblewrapProbe, ProbeResult
from cleveragents.processes.guarded_runner import WITHOUT_EFFECT, GuardedCommandRunner
from cleveragents.processes.ports import Command, CommandHome
from cleveragents.sandboxes import setup_cache
from cleveragents.sandboxes import setup_cache as content_digest
from cleveragents.sandboxes.directory_copy import DirectoryCopy
from cleveragents.sandboxes.ports import SandboxRequest, SetupInputs
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.sandboxes.setup_cache import SetupCache
from tests.apply_bench import git
from tests.sandbox_resources import make_repository, write

FILES = {
    "requirements.lock": "x==1\n",
    "build.sh": "echo clean\n",
    "deep/er/file": "1\n",
    ".gitignore": "*.log\n.npmrc\n",
}


class Probe(BubblewrapProbe):
    """A probe with a given result."""

    def __init__(self, *, works: bool) -> None:
        super().__init__()
        self._works = works

    def result(self) -> ProbeResult:
        return ProbeResult("/usr/bin/bwrap" if self._works else None)


@dataclass
class World:
    """A repository, a cache, and as many sandboxes as needed."""

    place: Path
    resource: Path
    cache: SetupCache
    made: int = 0

    def sandbox(self, **facts: Any) -> Path:
        self.made += 1
        request = SandboxRequest(f"plan-{self.made}", self.resource, **facts)
        return PrivateClone().create(request, self.place / "sandboxes" / f"{self.made}").root

    def key(self, tree: Path, **facts: Any) -> str | None:
        return self.cache.key(inputs(tree, **facts), tree)


def command_in(tree: Path) -> Command:
    return Command(
        ("/bin/sh", "-c", "sh build.sh"),
        tree,
        tree,
        readable=(tree.parent / "engine/objects",),
        passed=("X",),
    )


def inputs(tree: Path, runner: GuardedCommandRunner | None = None, **facts: Any) -> SetupInputs:
    command = replace(command_in(tree), **facts)
    asked = (runner or GuardedCommandRunner(isolation="off")).inputs_of(command)
    return SetupInputs("default", (".venv",), asked)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    place = tmp_path_factory.mktemp("world")
    return World(place, make_repository(place / "resource", FILES), SetupCache(place / "setups"))


@pytest.fixture(scope="module")
def clean(world: World) -> Path:
    return world.sandbox()


def test_two_sandboxes_of_the_same_base_have_the_same_key(world: World, clean: Path) -> None:
    assert world.key(clean) is not None
    assert world.key(clean) == world.key(world.sandbox()) == world.key(world.sandbox(from_head=True))


def hostile_git(path: str, content: str) -> Callable[[Path], None]:
    return lambda tree: write(tree / ".git", {path: content})


def link(tree: Path) -> None:
    (tree / "link").symlink_to("/etc/passwd")


def replaced_by_a_link(tree: Path) -> None:
    (tree / "build.sh").rename(tree / "elsewhere.log")
    (tree / "build.sh").symlink_to("elsewhere.log")


def executable(tree: Path) -> None:
    (tree / "build.sh").chmod(0o755)


def moved(tree: Path) -> None:
    (tree / "deep/er/file").rename(tree / "deep/file")


def empty_directory(tree: Path) -> None:
    (tree / "node_modules").mkdir()


def pipe(tree: Path) -> None:
    os.mkfifo(tree / "pipe")


def planted_index(tree: Path) -> None:
    git(tree, "update-index", "--assume-unchanged", "build.sh")


# Changes that a setup command could read: each gives another key than the clean sandbox.
FILES_THAT_DIFFER: Mapping[str, Callable[[Path], None]] = {
    "lock file": lambda tree: write(tree, {"requirements.lock": "x==2\n"}),
    "script that the setup runs": lambda tree: write(tree, {"build.sh": "echo poison\n"}),
    "file at any depth": lambda tree: write(tree, {"deep/er/file": "2\n"}),
    "new file": lambda tree: write(tree, {"sitecustomize.py": "poison\n"}),
    "missing file": lambda tree: (tree / "deep/er/file").unlink(),
    "moved file": moved,
    "ignored file": lambda tree: write(tree, {".npmrc": "registry=http://evil\n"}),
    "ignored file in a directory": lambda tree: write(tree, {"deep/x.log": "poison\n"}),
    "link": link,
    "link in place of a file": replaced_by_a_link,
    "mode": executable,
    "empty directory": empty_directory,
    "pipe": pipe,
    "files of a submodule": lambda tree: write(tree, {"vendor/.git/config": "[core]\n"}),
    "nested repository": lambda tree: write(tree, {"deep/.git/HEAD": "ref: refs/heads/x\n"}),
    "branch": hostile_git("HEAD", "ref: refs/heads/evil\n"),
    "commit": hostile_git("refs/heads/main", "0" * 40 + "\n"),
    "tag": hostile_git("refs/tags/v9", "0" * 40 + "\n"),
    "packed refs": hostile_git("packed-refs", "0" * 40 + " refs/tags/v9\n"),
    "git configuration": hostile_git("config", "[core]\n\tfsmonitor = evil\n"),
    "git hook": hostile_git("hooks/post-checkout", "evil\n"),
    "git attributes": hostile_git("info/attributes", "* filter=evil\n"),
    "planted object": hostile_git("objects/aa/" + "b" * 38, "evil\n"),
    "alternates": hostile_git("objects/info/alternates", "/evil\n"),
    "index": planted_index,
}


@pytest.mark.parametrize("what", FILES_THAT_DIFFER)
def test_a_sandbox_that_differs_in_any_file_has_another_key(world: World, clean: Path, what: str) -> None:
    tree = world.sandbox()
    assert world.key(tree) == world.key(clean)
    FILES_THAT_DIFFER[what](tree)
    assert world.key(tree) not in (None, world.key(clean))


def test_included_ignored_files_are_part_of_the_key(world: World, clean: Path) -> None:
    seen = {world.key(clean)}
    for content in ("registry=a\n", "registry=b\n"):
        write(world.resource, {".npmrc": content})
        seen.add(world.key(world.sandbox(include=(".npmrc",))))
    (world.resource / ".npmrc").unlink()
    assert len(seen) == 3


def test_another_commit_of_the_same_files_has_another_key(tmp_path: Path) -> None:
    """Package versions are derived from commits and tags."""
    world = World(tmp_path, make_repository(tmp_path / "resource", FILES), SetupCache(tmp_path / "setups"))
    before = world.key(world.sandbox())
    git(world.resource, "commit", "-q", "--allow-empty", "-m", "evil")
    assert world.key(world.sandbox()) != before


def test_another_resource_with_the_same_files_has_another_key(tmp_path: Path) -> None:
    """Even without git, whose paths would distinguish them."""
    cache, keys = SetupCache(tmp_path / "setups"), set()
    for name in ("one", "other"):
        write(tmp_path / name, FILES)
        tree = DirectoryCopy().create(SandboxRequest(name, tmp_path / name), tmp_path / "s" / name).root
        runner = GuardedCommandRunner(isolation="off")
        asked = runner.inputs_of(Command(("make",), tree, tree))
        keys.add(cache.key(SetupInputs("default", (), asked), tree))
    assert len(keys) == 2


def test_another_cache_has_other_keys(world: World, clean: Path, tmp_path: Path) -> None:
    """A key must not reveal the secrets among its inputs by brute force."""
    assert SetupCache(tmp_path).key(inputs(clean), clean) != world.key(clean)


# A value for every field of a command that differs from the one in `command_in`.
OTHER_COMMANDS: Mapping[str, Callable[[Path], object]] = {
    "argv": lambda tree: ("/bin/sh", "-c", "sh other.sh"),
    "directory": lambda tree: tree / "deep",
    "network": lambda tree: True,
    "network_denied": lambda tree: True,
    "readable": lambda tree: (Path("/srv/other"),),
    "environment": lambda tree: {"PIP_INDEX_URL": "http://evil"},
    "passed": lambda tree: (),
    "input": lambda tree: b"yes",
    "processes": lambda tree: 5,
    "root": lambda tree: tree.parent / "elsewhere",
    "markers": lambda tree: {"CLEVERAGENTS_ATTEMPT": "2"},
    "timeout_seconds": lambda tree: 5.0,
    "output_limit_bytes": lambda tree: 5,
}
SAME_KEY = {*WITHOUT_EFFECT} - {"environment", "passed"}


@pytest.mark.parametrize("name", Command.__struct_fields__)
def test_every_field_of_the_command_is_part_of_the_key_or_without_effect(
    clean: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("X", "1")
    if name == "home":
        with pytest.raises(ValueError, match="not listed"):
            inputs(clean, home=CommandHome((".npmrc",)))
        return
    differs = inputs(clean, **{name: OTHER_COMMANDS[name](clean)}) != inputs(clean)
    assert differs is (name not in SAME_KEY)


@pytest.mark.parametrize("name", SetupInputs.__struct_fields__)
def test_every_other_input_is_part_of_the_key(world: World, clean: Path, name: str) -> None:
    asked = inputs(clean)
    other = {"project": "tenant-b", "paths": (".venv", "x"), "command": {**asked.command, "new": "input"}}
    assert world.cache.key(replace(asked, **{name: other[name]}), clean) != world.key(clean)


def test_variables_and_runner_settings_are_inputs(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(**settings: Any) -> str:
        settings = {"isolation": "auto", "probe": Probe(works=True), **settings}
        return repr(inputs(clean, GuardedCommandRunner(**settings)))

    monkeypatch.setenv("X", "1")
    monkeypatch.setenv("Y", "1")
    seen = [asked(), asked(isolation="off"), asked(probe=Probe(works=False)), asked(hidden=(Path("/srv"),))]
    assert seen[1] == seen[2] != seen[0]
    seen += [asked(allowed_names=("Y",))]
    for name, value in {"X": "2", "LC_ALL": "C", "TZ": "Asia/Tokyo", "PATH": "/evil/bin"}.items():
        monkeypatch.setenv(name, value)
        seen.append(asked())
    assert len({*seen}) == len(seen) - 1


def test_the_system_is_part_of_the_key(world: World, clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.key(clean)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert world.key(clean) != before
    monkeypatch.undo()
    write(world.place, {"os-release": "VERSION_ID=99\n"})
    monkeypatch.setattr(setup_cache, "_OS_RELEASE", world.place / "os-release")
    assert world.key(clean) != before


def test_unreadable_files_have_no_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = world.sandbox()
    with (tree / "sparse.log").open("wb") as file:
        file.truncate(content_digest._MOST_BYTES + 1)
    assert world.key(tree) is None
    (tree / "sparse.log").unlink()
    monkeypatch.setattr(content_digest, "_LARGEST_INDEX", 10)
    assert world.key(tree) is None
