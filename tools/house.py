"""Prints the table of the house: the sizes of the modules and their dependencies.

    python -m tools.house                  # this checkout
    python -m tools.house --upward         # also lists each import that points up

All figures come from the sources under `src/cleveragents`; only the last row reads the git history.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["House", "Module", "main", "read_house", "table"]

_ROOT = Path(__file__).parents[1]
_SOURCES = _ROOT / "src"
_PACKAGE = "cleveragents"
_CORE = f"{_PACKAGE}.core"
_FIXES = 50
_NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
)


@dataclass(frozen=True)
class Module:
    """One source file, and the project's modules that it imports."""

    name: str
    is_package: bool
    lines: int
    code_lines: int
    import_lines: int
    statements: int
    public_classes: tuple[str, ...]
    imports: frozenset[str]

    @property
    def folder(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class House:
    """All modules, and the order of the layers: a module imports from its own layer and later ones."""

    modules: dict[str, Module]
    layers: tuple[tuple[str, ...], ...]

    def edges(self) -> Iterator[tuple[str, str]]:
        for module in self.modules.values():
            for imported in module.imports:
                yield module.name, imported

    def upward(self) -> list[tuple[str, str]]:
        """Return the imports that violate the order of the layers."""
        found = []
        for importer, imported in self.edges():
            above, below = self._layer_of(importer), self._layer_of(imported)
            if above is not None and below is not None and below < above:
                found.append((importer, imported))
        return sorted(found)

    def _layer_of(self, name: str) -> int | None:
        places = [
            (len(prefix), number)
            for number, layer in enumerate(self.layers)
            for prefix in layer
            if name == prefix or name.startswith(f"{prefix}.")
        ]
        return max(places)[1] if places else None


def read_house(sources: Path = _SOURCES) -> House:
    """Parse every module under `sources`."""
    paths = sorted((sources / _PACKAGE).rglob("*.py"))
    names = {_name(path, sources): path for path in paths}
    modules = {name: _read(name, path, frozenset(names)) for name, path in names.items()}
    return House(modules, _layers())


def table(house: House) -> str:
    """Return the table in Markdown."""
    modules = list(house.modules.values())
    sizes = [module.lines for module in modules]
    largest = max(modules, key=lambda module: module.lines)
    folders = Counter(module.folder for module in modules if not module.is_package)
    folder, in_folder = folders.most_common(1)[0]
    edges = list(house.edges())
    in_one_folder = sum(_folder(house, one) == _folder(house, other) for one, other in edges)
    in_one_feature = sum(_feature(one) == _feature(other) for one, other in edges)
    among = [edge for edge in edges if _feature(edge[0]) == _CORE or _feature(edge[1]) != _CORE]
    importers = defaultdict(set)
    for importer, imported in edges:
        importers[imported].add(importer)
    defined = Counter(name for module in modules for name in module.public_classes)
    duplicates = sum(count > 1 for count in defined.values())
    lines = sum(sizes)
    imports = sum(module.import_lines for module in modules)
    rows = [
        ("Modules", f"{len(modules)}"),
        ("Median size", f"{statistics.median(sizes):.0f} lines"),
        ("Largest module", f"{largest.lines} lines (`{_short(largest.name)}`)"),
        ("AST statements", f"{sum(module.statements for module in modules):,}"),
        ("Code lines", f"{sum(module.code_lines for module in modules):,}"),
        ("Import share", f"{imports / lines:.1%} of all lines"),
        ("Largest folder", f"{in_folder} modules (`{_short(folder)}`)"),
        ("Cohesion", f"{in_one_folder / len(edges):.1%} of {len(edges):,} import edges stay inside a folder"),
        ("Cohesion of features", f"{in_one_feature / len(edges):.1%} stay inside a top-level package"),
        ("Cohesion without `core`", f"{in_one_feature / len(among):.1%}, imports of `core` not counted"),
        ("Modules with one importer", f"{sum(len(found) == 1 for found in importers.values())}"),
        ("Upward edges", f"{len(house.upward())}"),
        ("Duplicate public class names", f"{duplicates}"),
        (f"Modules touched by the last {_FIXES} fixes", _touched()),
    ]
    return "\n".join(["| Metric | Today |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the table of the house.")
    parser.add_argument("--upward", action="store_true", help="list each import that points up")
    house = read_house()
    print(table(house))
    if parser.parse_args().upward:
        for importer, imported in house.upward():
            print(f"{importer} -> {imported}")


def _name(path: Path, sources: Path) -> str:
    parts = path.relative_to(sources).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _short(name: str) -> str:
    return name.removeprefix(f"{_PACKAGE}.")


def _folder(house: House, name: str) -> str:
    return house.modules[name].folder


def _feature(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _read(name: str, path: Path, names: frozenset[str]) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    public = tuple(
        node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return Module(
        name=name,
        is_package=path.name == "__init__.py",
        lines=text.count("\n"),
        code_lines=_code_lines(text, tree),
        import_lines=sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports),
        statements=sum(isinstance(node, ast.stmt) for node in nodes),
        public_classes=public,
        imports=frozenset(_imported(imports, names) - {name}),
    )


def _code_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines with code: no blank lines, comments or docstrings."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                held.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(held)


def _imported(imports: list[ast.Import | ast.ImportFrom], names: frozenset[str]) -> set[str]:
    found: set[str] = set()
    for node in imports:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name in names)
        elif node.module in names:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(members & names)
            if not members <= names:
                found.add(node.module)
    return found


def _layers() -> tuple[tuple[str, ...], ...]:
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    first = settings["tool"]["importlinter"]["contracts"][0]
    return tuple(
        tuple(f"{_PACKAGE}.{part.strip()}" for part in layer.split("|")) for layer in first["layers"]
    )


def _touched() -> str:
    log = subprocess.run(
        ["git", "log", f"-{_FIXES}", "--grep=^fix", "--name-only", "--format=%x00", "--", "src/**.py"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    fixes = [fix.split() for fix in log.split("\0") if fix.strip()]
    touched = {path for fix in fixes for path in fix}
    each = statistics.mean(len(fix) for fix in fixes)
    return f"{len(touched)}, {each:.1f} each"


if __name__ == "__main__":
    main()
