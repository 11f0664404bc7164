"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "cleveragents"
MODULES = sorted(SOURCE.rglob("*.py"))
LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
SUPPRESSIONS = re.compile(r"#\s*(type:\s*ignore|noqa|pragma:\s*no\s*cover|pyright:)", re.IGNORECASE)


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


each_module = pytest.mark.parametrize("path", MODULES, ids=_name)


@each_module
def test_a_module_says_what_it_is_and_what_it_offers(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "no docstring"
    code = [node for node in tree.body if not isinstance(node, ast.Expr)]
    if not code or "migrations" in path.parts:
        return
    names = {target.id for node in tree.body for target in _assigned(node)}
    assert "__all__" in names, "no __all__"


@each_module
def test_what_all_names_exists(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    offered = [
        element.value
        for node in tree.body
        if any(target.id == "__all__" for target in _assigned(node))
        and isinstance(node, (ast.Assign, ast.AnnAssign))
        and isinstance(node.value, ast.List)
        for element in node.value.elts
        if isinstance(element, ast.Constant)
    ]
    defined = {node.name for node in tree.body if hasattr(node, "name")}
    defined |= {target.id for node in tree.body for target in _assigned(node)}
    defined |= {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert set(offered) <= defined


@each_module
def test_a_module_stays_within_its_bounds(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400, "past 400 lines a module wants splitting"
    assert not SUPPRESSIONS.search(text), "a suppression hides something"


@each_module
def test_a_class_that_makes_a_lock_states_its_thread_safety(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and _makes_a_lock(node):
            said = ast.get_docstring(node) or ""
            for paragraph in ("Thread safety:", "Owner:", "Lock:", "Guarantee:", "Cancel safety:"):
                assert paragraph in said, f"{node.name} makes a lock and its docstring lacks {paragraph!r}"


@each_module
def test_locks_are_made_through_the_threading_module(path: Path) -> None:
    """Explorers of interleavings replace `threading.Lock`; a name imported from it would escape them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "threading":
            assert not LOCKS & {alias.name for alias in node.names}


@each_module
def test_no_module_is_named_for_nothing(path: Path) -> None:
    nothing = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
    assert not nothing & set(path.relative_to(SOURCE).with_suffix("").parts)


def _assigned(node: ast.stmt) -> list[ast.Name]:
    if isinstance(node, ast.Assign):
        return [target for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target]
    return []


def _makes_a_lock(node: ast.ClassDef) -> bool:
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in LOCKS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "threading"
        for call in ast.walk(node)
    )
