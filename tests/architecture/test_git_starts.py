"""git is started in one place, which keeps it away from the files of sandboxes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src/cleveragents"
STARTS_GIT = {"git/plumbing.py", "git/blob_reader.py"}
# Modules that start programs, but never git on a user's files; each states the reason.
STARTS_PROGRAMS = STARTS_GIT | {
    "processes/bubblewrap.py",
    "processes/guard.py",
    "processes/guard_process.py",
    "processes/stdio_process.py",
    "context/index/build/worker_pool.py",
    "git/plumbing.py",
    "jobs/process/supervisor.py",
    "tools/files/matchers.py",
    "cli/plan/publish.py",
    "cli/run/background.py",
    "cli/doctor/checks.py",
    "demo/worker_process.py",
}


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(SOURCES)): ast.parse(path.read_text(encoding="utf-8"))
        for path in SOURCES.rglob("*.py")
    }


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def imported(tree: ast.AST) -> set[str]:
    plain = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return plain | {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_only_the_plumbing_starts_git(trees: dict[str, ast.Module]) -> None:
    users = {name for name, tree in trees.items() if "git_program" in names_in(tree)}
    assert users == STARTS_GIT


def test_every_start_of_git_checks_its_directory(trees: dict[str, ast.Module]) -> None:
    for name in STARTS_GIT:
        assert "ensure_no_sandbox" in names_in(trees[name]), name


def test_no_other_module_starts_programs_unnoticed(trees: dict[str, ast.Module]) -> None:
    starting = {"subprocess", "asyncio.subprocess", "pty"}
    found = {name for name, tree in trees.items() if imported(tree) & starting}
    assert found == STARTS_PROGRAMS
