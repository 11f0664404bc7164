"""Files that a peer must not remove, and lists that must be durable before files move."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from cleveragents.sandboxes.registry import SandboxRegistry
from cleveragents.sandboxes.rows import SandboxRow
from cleveragents.sandboxes.setup_cache import SetupCache
from cleveragents.storage.database import Database, open_database
from tests.ready_database import ready_database
from tests.sandbox_resources import make_repository, write


class Overtaken(list[str]):
    """Paths with an action of a peer between the first check and the second."""

    def __init__(self, paths: list[str], meanwhile: Callable[[], None]) -> None:
        super().__init__(paths)
        self._meanwhile = meanwhile
        self._looks = 0

    def __iter__(self) -> Iterator[str]:
        self._looks += 1
        if self._looks == 2:
            self._meanwhile()
        return super().__iter__()


def test_an_entry_is_not_evicted_while_it_is_copied(tmp_path: Path) -> None:
    cache = SetupCache(tmp_path / "cache", limit_bytes=1)
    one, two = tmp_path / "one/tree", tmp_path / "two/tree"
    write(one, {".venv/made": "1\n"})
    two.mkdir(parents=True)
    cache.keep("k", one, [".venv"])
    paths = Overtaken([".venv"], lambda: cache.keep("other", one, [".venv"]))
    assert cache.take("k", two, paths)
    assert (two / ".venv/made").read_text() == "1\n"
    cache.keep("third", one, [".venv"])
    assert not cache.take("k", two, [".venv"]), "it was over the limit all the time"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to tell which file was flushed")
def test_the_list_of_hidden_files_is_durable_before_anything_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = make_repository(tmp_path / "r", {".gitignore": "*.log\n"})
    sandbox = PrivateClone(durable=True).create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    write(sandbox.root, {"x.log": "a step's"})
    flushed: list[tuple[Path, list[str], bool]] = []
    flush = os.fsync

    def noting(descriptor: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        names = [path.name for path in place.iterdir()] if place.is_dir() else []
        flushed.append((place, names, (sandbox.root / "x.log").exists()))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    with sandbox.writing(), sandbox.without_ignored():
        assert (tmp_path / "sandbox/set-aside", ["entries.json"], True) in flushed


class Late(SandboxRegistry):
    """A registry in which a peer removes a sandbox right after it was found."""

    def __init__(self, database: Database, home: Path) -> None:
        super().__init__(database, home)
        self._peers = [SandboxRegistry(database, home)]

    def row(self, plan_id: str) -> SandboxRow | None:
        found = super().row(plan_id)
        if self._peers:
            self._peers.pop().remove(plan_id)
        return found


def test_removing_a_sandbox_that_a_peer_removed_leaves_nothing(tmp_path: Path) -> None:
    resource = make_repository(tmp_path / "r", {"a": "1\n"})
    with open_database(ready_database(tmp_path / "store.db")) as database:
        registry = Late(database, tmp_path / "sandboxes")
        SandboxRegistry(database, tmp_path / "sandboxes").create(SandboxRequest("plan-1", resource))
        registry.remove("plan-1")
        assert registry.row("plan-1") is None
    assert list((tmp_path / "sandboxes").iterdir()) == []
