"""Large files that no commit holds: announced, and stored once, without compression."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cleveragents.git.git_directory import LooseObjects
from cleveragents.git.plumbing import PrivateRepository
from cleveragents.sandboxes import resources
from cleveragents.sandboxes.directory_copy import DirectoryCopy
from cleveragents.sandboxes.ports import SandboxRequest
from cleveragents.sandboxes.private_clone import PrivateClone
from tests.sandbox_resources import git, make_repository

_LARGE = random.Random(1).randbytes(3_000_000)


@pytest.fixture
def resource(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "resource", {"a": "1\n", ".gitignore": "*.log\n"})


@pytest.fixture
def low_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_LARGE_BYTES", 2_000_000)


def stored_bytes(directory: Path) -> int:
    return sum(
        path.stat().st_size for path in (directory / "engine" / "objects").rglob("*") if path.is_file()
    )


@pytest.mark.usefixtures("low_threshold")
def test_announces_the_copy_of_large_uncommitted_files(resource: Path, tmp_path: Path) -> None:
    (resource / "big.bin").write_bytes(_LARGE)
    (resource / "small.txt").write_text("small\n")
    (resource / "huge.log").write_bytes(_LARGE)  # ignored, so not copied
    told: list[str] = []
    PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox", progress=told.append)
    assert told == ["copying 3 MB of uncommitted files, the largest: big.bin (3 MB)"]


@pytest.mark.usefixtures("low_threshold")
def test_announces_the_copy_of_a_large_directory(tmp_path: Path) -> None:
    (tmp_path / "plain" / "data").mkdir(parents=True)
    (tmp_path / "plain" / "data" / "big.bin").write_bytes(_LARGE)
    told: list[str] = []
    request = SandboxRequest("plan-1", tmp_path / "plain")
    DirectoryCopy().create(request, tmp_path / "sandbox", progress=told.append)
    assert told == ["copying 3 MB of files, the largest: data/big.bin (3 MB)"]


def test_does_not_announce_small_files(resource: Path, tmp_path: Path) -> None:
    (resource / "small.txt").write_text("small\n")
    told: list[str] = []
    PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox", progress=told.append)
    assert told == []


@pytest.mark.parametrize("is_staged", [False, True], ids=["untracked", "staged"])
def test_stores_a_large_uncommitted_file_once(resource: Path, tmp_path: Path, is_staged: bool) -> None:
    (resource / "big.bin").write_bytes(_LARGE)
    if is_staged:
        git(resource, "add", "big.bin")
    sandbox = PrivateClone().create(SandboxRequest("plan-1", resource), tmp_path / "sandbox")
    assert (sandbox.root / "big.bin").read_bytes() == _LARGE
    assert stored_bytes(tmp_path / "sandbox") < 1.5 * len(_LARGE)
    # The sandbox holds the content itself: the user may unstage and prune it.
    (tmp_path / "sandbox" / "engine" / "objects" / "info" / "alternates").unlink()
    name = git(resource, "hash-object", "big.bin").decode().strip()
    assert PrivateRepository(tmp_path / "sandbox" / "engine").git("cat-file", "blob", name) == _LARGE


def test_stores_large_files_without_compression(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "zeros").write_bytes(bytes(2_000_000))
    objects = LooseObjects(tmp_path / "objects", "sha1")
    with (tmp_path / "zeros").open("rb") as file:
        name = objects.keep_file(file.fileno(), 2_000_000)
    assert name is not None
    assert objects.read(name) == bytes(2_000_000)
    assert (tmp_path / "objects" / name[:2] / name[2:]).stat().st_size > 2_000_000
