"""Rules for modules that a machine can check."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from cleveragents.core.text.redaction import redact_text
from tools.merge import Tree, small_modules

SOURCE = Path(__file__).parents[2] / "src" / "cleveragents"
LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
SUPPRESSIONS = re.compile(r"#\s*(type:\s*ignore|noqa|pragma:\s*no\s*cover|pyright:)", re.IGNORECASE)
NOTHING = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
NOT_YET_MERGED = {"api", "application", "cli", "infrastructure", "langgraph"}
STATED = ("Thread safety:", "Owner:", "Lock:", "Guarantee:", "Cancel safety:")


@dataclass(frozen=True)
class Module:
    """A source file and its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return str(self.path.relative_to(SOURCE))


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    """Read and parse all modules once."""
    texts = [(path, path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))]
    return [Module(path, text, ast.parse(text)) for path, text in texts]


def test_finds_the_modules(modules: list[Module]) -> None:
    assert "core/errors/__init__.py" in [module.name for module in modules]


def test_a_module_has_a_docstring_and_all(modules: list[Module]) -> None:
    silent = [module.name for module in modules if not ast.get_docstring(module.tree)]
    assert silent == [], "no docstring"
    unlisted = [module.name for module in modules if _offers_unlisted(module)]
    assert unlisted == [], "no __all__"


def test_every_name_in_all_exists(modules: list[Module]) -> None:
    missing = {module.name: _listed(module.tree) - _defined(module.tree) for module in modules}
    assert {name: names for name, names in missing.items() if names} == {}


def test_a_module_has_at_most_800_lines_and_no_suppression(modules: list[Module]) -> None:
    long = [module.name for module in modules if len(module.text.splitlines()) > 800]
    assert long == [], "past 800 lines a module wants splitting"
    hiding = [module.name for module in modules if SUPPRESSIONS.search(module.text)]
    assert hiding == [], "a suppression hides something"


def test_a_folder_holds_at_most_25_modules(modules: list[Module]) -> None:
    folders = Counter(module.path.parent for module in modules if module.path.name != "__init__.py")
    crowded = {str(folder.relative_to(SOURCE)): count for folder, count in folders.items() if count > 25}
    assert crowded == {}, "a sub-package is hiding"


def test_a_small_module_with_one_importer_is_merged_into_it() -> None:
    """Modules imported by a function are exempt: they save time for callers that do not need them."""
    tree = Tree.read()
    features = {name.split(".")[0] for name in tree.modules} - NOT_YET_MERGED
    # Each language is one file, found by its path.
    alone = {"context.analysis.languages.c"}
    assert set(small_modules(tree, features)) == alone


def test_a_store_imports_only_models_and_ports_of_its_feature(modules: list[Module]) -> None:
    stores = [module for module in modules if "store" in module.path.relative_to(SOURCE).parts[1:-1]]
    assert len(stores) > 15
    upward = {
        f"{module.name} imports {imported}"
        for module in stores
        for imported in _of_its_feature(module)
        if not re.search(r"\.(store|model|ports|\w+_ports)(\.|$)", imported)
    }
    assert upward == set()


def test_a_class_that_makes_a_lock_states_its_thread_safety(modules: list[Module]) -> None:
    lacking = [
        f"{module.name}: {node.name} makes a lock and its docstring lacks {paragraph!r}"
        for module in modules
        if "threading" in module.text
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and _makes_a_lock(node)
        for paragraph in STATED
        if paragraph not in (ast.get_docstring(node) or "")
    ]
    assert lacking == []


def test_locks_are_made_through_the_threading_module(modules: list[Module]) -> None:
    """Explorers of interleavings replace `threading.Lock`; an imported name would escape them."""
    imported = [
        module.name
        for module in modules
        if "threading" in module.text
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.module == "threading"
        if LOCKS & {alias.name for alias in node.names}
    ]
    assert imported == []


def test_no_module_has_an_empty_name(modules: list[Module]) -> None:
    parts = {module.name: set(module.path.relative_to(SOURCE).with_suffix("").parts) for module in modules}
    assert [name for name, words in parts.items() if NOTHING & words] == []


def test_messages_of_the_command_line_are_not_masked(modules: list[Module]) -> None:
    told = [module for module in modules if module.name.startswith(("api/", "cli/", "server/"))]
    eaten = {
        f"{module.name}: {text}"
        for module in told
        for text in _sentences(module.tree)
        if redact_text(text) != text
    }
    assert eaten == {"api/context.py: def sign(cookie: str) -> str: …"}  # an example of code


def _of_its_feature(module: Module) -> list[str]:
    """Return the modules of its own feature that a module imports."""
    feature = f"cleveragents.{module.path.relative_to(SOURCE).parts[0]}."
    imports = [node.module or "" for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom)]
    return [name for name in imports if name.startswith(feature)]


def _offers_unlisted(module: Module) -> bool:
    """Return whether a module has code but no `__all__`."""
    code = [node for node in module.tree.body if not isinstance(node, ast.Expr)]
    names = {target.id for node in module.tree.body for target in _assigned(node)}
    return bool(code) and "migrations" not in module.path.parts and "__all__" not in names


def _listed(tree: ast.Module) -> set[object]:
    """Return the names in `__all__`."""
    return {
        element.value
        for node in tree.body
        if any(target.id == "__all__" for target in _assigned(node))
        and isinstance(node, (ast.Assign, ast.AnnAssign))
        and isinstance(node.value, ast.List)
        for element in node.value.elts
        if isinstance(element, ast.Constant)
    }


def _defined(tree: ast.Module) -> set[object]:
    defined: set[object] = {node.name for node in tree.body if hasattr(node, "name")}
    if "__getattr__" in defined:  # imported on first use, and for type checkers
        lazy = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        defined |= {alias.name for node in lazy for alias in node.names}
    defined |= {target.id for node in tree.body for target in _assigned(node)}
    return defined | {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


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


def _sentences(tree: ast.Module) -> list[str]:
    """Return texts of one line, with a sample value for each placeholder."""
    texts: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            texts.append(
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "Value" for part in node.values
                )
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
    return [text for text in texts if " " in text and "\n" not in text]


def test_only_the_cli_writes_command_lines(modules: list[Module]) -> None:
    """Elsewhere an error carries a `Remedy`, which the command line, the page and the API each render."""
    from cleveragents.cli.commands import cli

    names = "|".join(cli.list_commands(click.Context(cli)))
    spelt = re.compile(rf"(?:^|[`'\"(:;,]\s*|\b(?:run|say|with|by) )agents (?:{names})\b")
    found = [
        f"{module.name}:{text.lineno}: {text.value.strip()!r}"
        for module in modules
        if not module.name.startswith(("cli/", "demo/"))
        for text in _texts(module.tree)
        if spelt.search(str(text.value))
    ]
    assert found == [], "a command line outside cli/: give the error a Remedy"


def _texts(tree: ast.Module) -> list[ast.Constant]:
    """Return the string literals of a module, except docstrings."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    literals = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [node for node in literals if isinstance(node.value, str) and id(node) not in said]
