"""Repositories of unusual structure, through the command line: applied and undone byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.apply_bench import snapshot
from tests.cli_bench import COMMAND, Agents, command_line, git, use_home
from tests.odd_structures import LINES, STRUCTURES, Directory, Structure
from tests.ready_repository import made_once


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one database for all tests of this module; each has its own repository."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture
def root(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path, state)
    root = tmp_path / "repository"
    made_once(root, "odd_structures", _repository, lambda: git(root, "update-index", "-q", "--refresh"))
    monkeypatch.chdir(root)
    return root


def _repository(root: Path) -> None:
    (root / "a").write_bytes(LINES)
    (root / "other").write_bytes(b"other\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")


@pytest.fixture
def agents(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Agents]:
    with command_line(monkeypatch, capfd) as run:
        yield run


@pytest.mark.parametrize("name", STRUCTURES)
def test_is_applied_and_undone_exactly_or_refused_with_a_reason(
    root: Path, agents: Agents, name: str
) -> None:
    case = STRUCTURES[name]
    case.build(root)
    ran = agents(*COMMAND[:1], "--review", *COMMAND[1:], "sh", "-c", case.command)
    assert ran.code == 0, ran.err
    case.meanwhile(root)
    before, index = snapshot(root), git(root, "ls-files", "-s", "-v")
    applied = agents("plan", "apply", ran.id)
    if case.said:
        _ensure_told(agents, ran.id, case, ran.err + applied.err)
    assert git(root, "ls-files", "-s", "-v") == index
    if case.refused:
        assert applied.code != 0
        assert case.refused in applied.err
        assert snapshot(root) == before
        return
    assert applied.code == 0, applied.err
    assert snapshot(root) == _after(before, case.applied)
    undone = agents("plan", "undo", ran.id)
    assert undone.code == 0, undone.err
    assert snapshot(root) == before


def _ensure_told(agents: Agents, plan: str, case: Structure, printed: str) -> None:
    shown = json.loads(agents("plan", "show", plan, "--format", "json").out)
    assert {key: shown[key] for key in case.shown} == case.shown
    people = " ".join(agents("plan", "show", plan).out.split())
    for sentence in case.said:
        assert sentence in printed
        assert sentence.strip() in people
        assert any(sentence.strip() in note for note in shown["notes"])


def _after(
    before: dict[str, tuple[str, bytes]], applied: Mapping[str, bytes | Directory | None]
) -> dict[str, tuple[str, bytes]]:
    after = dict(before)
    for path, edit in applied.items():
        if edit is None:
            del after[path]
        else:
            after[path] = ("directory", b"") if isinstance(edit, Directory) else ("file 644", edit)
    return after
