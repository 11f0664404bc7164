"""git is started in one place, which keeps it away from the files of sandboxes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src/cleveragents"
STARTS_GIT = {"infrastructure/git/plumbing.py", "infrastructure/git/blob_reader.py"}
# Each starts programs, and none of them git on somebody's files; the reason is in the module.
STARTS_PROGRAMS = STARTS_GIT | {
    "infrastructure/commands/bubblewrap.py",
    "infrastructure/commands/guard.py",
    "infrastructure/commands/guard_process.py",
    "infrastructure/commands/talking_process.py",
    "infrastructure/context/index/crew.py",
    "infrastructure/git/exchange.py",
    "infrastructure/jobs/job_process.py",
    "infrastructure/tools/matchers.py",
    "interfaces/cli/background.py",
    "interfaces/cli/checks.py",
    "interfaces/demo/worker_process.py",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in SOURCES.rglob("*.py"):
        yield str(path.relative_to(SOURCES)), ast.parse(path.read_text(encoding="utf-8"))


def names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def imported(tree: ast.AST) -> set[str]:
    plain = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return plain | {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_only_the_plumbing_starts_git() -> None:
    users = {name for name, tree in modules() if "git_program" in names_in(tree)}
    assert users - {"infrastructure/git/program.py"} == STARTS_GIT


def test_whatever_starts_git_looks_where_it_starts_it() -> None:
    trees = dict(modules())
    for name in STARTS_GIT:
        assert "ensure_no_sandbox" in names_in(trees[name]), name


def test_no_other_module_starts_programs_unnoticed() -> None:
    found = {name for name, tree in modules() if imported(tree) & {"subprocess", "asyncio.subprocess", "pty"}}
    assert found == STARTS_PROGRAMS
