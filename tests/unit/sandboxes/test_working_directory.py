"""Commands start in the plan's working directory, even if it has no files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cleveragents.core.errors import OutsideSandbox, ToolRefused
from cleveragents.jobs.worker.async_worker import CancellationToken
from cleveragents.processes.ports import CommandResult
from cleveragents.sandboxes.resources import working_directory
from cleveragents.tools.builtin.command import TOOL
from cleveragents.tools.files.confined_files import ConfinedFiles
from cleveragents.tools.ports import Workplace


def test_a_directory_without_files_is_created(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert working_directory(tmp_path, "a/b/c") == tmp_path / "a/b/c"
    assert (tmp_path / "a/b/c").is_dir()
    assert working_directory(tmp_path, "") == tmp_path


def test_nothing_is_created_behind_a_link_or_a_file(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "file").write_text("a file\n")
    for below in ("link/more", "file/more", "file"):
        assert not working_directory(root, below).is_dir()
    assert list(outside.iterdir()) == []
    assert (root / "file").read_text() == "a file\n"


def started_in(root: Path, works_in: str, directory: str) -> str:
    asked: list[str] = []

    def commands(argv: tuple[str, ...], *, directory: str, **terms: Any) -> CommandResult:
        asked.append(directory)
        return CommandResult(0, "", 0, 0.0)

    place = Workplace(ConfinedFiles(root), commands, CancellationToken(), works_in)
    TOOL.call({"argv": ["true"], "directory": directory}, place)
    return asked[0]


def test_a_directory_is_relative_to_the_plans_working_directory(tmp_path: Path) -> None:
    (tmp_path / "pkg/in").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    assert started_in(tmp_path, "pkg", "in") == "in"
    assert started_in(tmp_path, "pkg", ".") == "."
    for here in ("", ".", "./"):
        assert started_in(tmp_path, "gone", here) == here
    with pytest.raises(ToolRefused, match="no such directory: 'other'"):
        started_in(tmp_path, "pkg", "other")
    for outside in ("../other", "/"):
        with pytest.raises(OutsideSandbox):
            started_in(tmp_path, "pkg", outside)
