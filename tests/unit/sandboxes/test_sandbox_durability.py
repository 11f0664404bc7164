"""With full durability, a sandbox's content is on disk before it is relied on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.registry import SandboxRegistry
from cleveragents.storage.database import Database, open_database
from tests.ready_database import ready_database
from tests.sandbox_resources import git, make_repository, write


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(ready_database(tmp_path / "store.db")) as opened:
        yield opened


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Record the names of files and directories when they are flushed."""
    names: set[str] = set()
    flush = os.fsync

    def noting(descriptor: int) -> None:
        names.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return names


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to tell which file was flushed")
@pytest.mark.parametrize("kind", ["repository", "directory"])
def test_facts_objects_and_their_directories_are_flushed(
    database: Database, tmp_path: Path, flushed: set[str], kind: str
) -> None:
    resource = tmp_path / "resource"
    if kind == "repository":
        make_repository(resource, {"a": "1\n"})
    write(resource, {"a": "2\n"})
    registry = SandboxRegistry(database, tmp_path / "sandboxes", durability="full")
    registry.create(SandboxRequest("plan-1", resource))
    sandbox = registry.open("plan-1")
    place = tmp_path / "sandboxes" / "plan-1"
    assert {str(place), f"{place}/sandbox.json.new", f"{place}/engine/config"} <= flushed
    assert git(place / "engine", "config", "core.fsync") == b"all\n"
    flushed.clear()
    write(sandbox.root, {"new": "3\n"})
    state = sandbox.state_of("new")
    assert state is not None
    objects = f"{place}/engine/objects"
    assert {objects, f"{objects}/{state.content[:2]}"} < flushed
    assert any(name.startswith(f"{objects}/tmp_obj_") for name in flushed), "before it has its name"


def test_normal_durability_flushes_nothing(database: Database, tmp_path: Path, flushed: set[str]) -> None:
    resource = make_repository(tmp_path / "resource", {"a": "1\n"})
    sandbox = SandboxRegistry(database, tmp_path / "sandboxes").create(SandboxRequest("plan-1", resource))
    write(sandbox.root, {"new": "3\n"})
    sandbox.state_of("new")
    assert not {name for name in flushed if "sandboxes" in name}
