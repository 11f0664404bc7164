"""Text reaches a terminal through escaping streams; the modules that style text are listed."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src/cleveragents"
OUTPUT = "cli/output.py"

# Modules that bypass the guard escape the text first; the tests of terminals run all of them.
UNGUARDED = {OUTPUT, "cli/render/footer.py", "config/logging.py"}
BYTES_TO_PIPES = {"cli/plan/view.py", "tools/files/regex_program.py"}
STARTS_PAGER = {"cli/plan/view.py", "cli/render/context_view.py"}


@cache
def _modules() -> dict[str, set[str]]:
    """Return the names that each module uses, except in annotations."""
    return {
        str(path.relative_to(SOURCES)): _names(_without_type_checking(ast.parse(path.read_bytes())))
        for path in SOURCES.rglob("*.py")
    }


def _names(tree: ast.AST) -> set[str]:
    """Return used or imported names, and attributes with their object: `click.style`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{one.name}" for one in node.names} | {one.name for one in node.names}
    return found


def _users(*names: str) -> set[str]:
    return {module for module, used in _modules().items() if used & set(names)}


def _without_type_checking(tree: ast.Module) -> ast.Module:
    kept = [one for one in tree.body if not (isinstance(one, ast.If) and "TYPE_CHECKING" in _names(one.test))]
    return ast.Module(kept, [])


def test_only_the_output_styles_text() -> None:
    assert _users("click.style", "click.secho", "click.unstyle", "click.progressbar") == {OUTPUT}
    assert _users("rich.console.Console") == {OUTPUT}
    assert _users("rich.print", "rich.get_console", "rich.markup.render") == set()


def test_only_known_modules_write_past_the_guard() -> None:
    assert _users("unguarded") == UNGUARDED
    assert _users("sys.stdout.buffer", "sys.stderr.buffer") == BYTES_TO_PIPES
    assert _users("click.echo_via_pager", "click.get_pager_file") == STARTS_PAGER
    bypasses = (
        "sys.__stdout__",
        "sys.__stderr__",
        "click.get_binary_stream",
        "click.open_file",
        "click.edit",
    )
    assert _users(*bypasses) == set()


def test_git_is_never_asked_for_colours() -> None:
    """Its colours cannot be distinguished from escape sequences in a file."""
    asking = [str(path) for path in SOURCES.rglob("*.py") if '"--color' in path.read_text(encoding="utf-8")]
    assert asking == []
