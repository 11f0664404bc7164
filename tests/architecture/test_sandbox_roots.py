"""The root of a sandbox is opened in one place, which reverts mode changes of commands."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src/cleveragents"
# Functions that open other directories by path: ours, or the user's own.
OTHERS = {
    "access/trust/repository_files.py: _open_inside": "the user's repository",
    "access/trust/repository_files.py: walk_inside": "the user's repository",
    "apply/exchange.py: __init__": "the user's files",
    "apply/lock.py: _locked": "the user's files",
    "config/document.py: _replace": "where settings are kept",
    "sandboxes/directory_copy.py: _copy": "the user's files, and a tree that no command has seen",
    "sandboxes/tree/visible_git.py: _complete": "a template of ours",
    "storage/backup.py: _copy_tree": "the state directory",
    "storage/files/paths.py: remove_all": "what a sandbox is kept in",
    "tools/mcp/configuration.py: _replace": "where settings are kept",
}


def by_path(module: ast.Module) -> set[str]:
    """Return the functions that open a directory by path."""
    return {
        function.name
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and _opens_directory_by_path(call)
    }


def _opens_directory_by_path(call: ast.Call) -> bool:
    if ast.unparse(call.func) != "os.open" or any(word.arg == "dir_fd" for word in call.keywords):
        return False
    return any("DIRECTORY" in ast.unparse(flags) for flags in call.args[1:])


def test_only_one_function_opens_the_root_of_a_sandbox() -> None:
    found = {
        f"{path.relative_to(SOURCES)}: {name}"
        for path in SOURCES.rglob("*.py")
        for name in by_path(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == OTHERS.keys(), "use `open_root`: a command may have taken the tree's permissions"


def test_a_directory_that_is_opened_by_its_path_is_found() -> None:
    plain = "def f(tree):\n    os.open(tree, _DIRECTORY)\ndef g(at):\n    os.open('x', _DIRECTORY, dir_fd=at)"
    assert by_path(ast.parse(plain)) == {"f"}
