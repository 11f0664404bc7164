"""Merges small modules into others, as `merges.toml` says.

    python -m tools.merge             # in a clean checkout: merges, rewrites all references, runs ruff
    python -m tools.merge --check     # only reports what it would refuse
    python -m tools.merge --imports   # afterwards: imports each merged module in a separate process
    python -m tools.merge --propose   # prints the map of splinters: small modules with one importer

The map may be older than the tree. Entries for missing modules are skipped. A merge that is impossible (two
meanings of a public name, an import cycle, a slower start) is reported and not made.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tools.house import read_house
from tools.joining import Joined, Origin, Part, Refused, joined
from tools.move import SUFFIXES, Moves, rewritten
from tools.scopes import is_type_checking

__all__ = ["Merges", "Tree", "main", "small_modules"]

_ROOT = Path(__file__).parents[1]
_SOURCES = _ROOT / "src" / "cleveragents"
_PACKAGE = "cleveragents"
_OURS = ("merges.toml", "tools/merge.py")
_NOT_YET = ("api", "application", "cli", "infrastructure", "langgraph")
_STARTS = (("--help",), ("plan", "list"))
_SMALL, _LARGE = 80, 500
_LIGHT = {"msgspec", "psutil", "structlog", "typing_extensions", "ulid"}
_TARGET = re.compile(r'(?<=[=:] )"([a-z_0-9]+(?:\.[a-z_0-9]+)*)"')
_EXPLAINED = re.compile(r'"(\w+)\.py::(\w+)')


@dataclass(frozen=True)
class _Module:
    name: str
    path: Path
    text: str
    tree: ast.Module
    is_package: bool

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_program(self) -> bool:
        return '__name__ == "__main__"' in self.text


@dataclass(frozen=True)
class Tree:
    """The modules below `cleveragents`, and the imports of each at import time."""

    modules: Mapping[str, _Module]

    @classmethod
    def read(cls) -> Tree:
        modules = {}
        for path in sorted(_SOURCES.rglob("*.py")):
            parts = path.relative_to(_SOURCES).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text(encoding="utf-8")
            modules[name] = _Module(name, path, text, ast.parse(text), path.name == "__init__.py")
        return cls(modules)

    def origin(self, module: str, name: str) -> Origin:
        """Return the origin of an imported name, followed through the project's modules."""
        own = module.removeprefix(f"{_PACKAGE}.")
        if module != _PACKAGE and own == module:
            return module, name
        inner = name if module == _PACKAGE else f"{own}.{name}"
        if inner in self.modules:
            return inner, ""
        further = self._given_on.get((own, name))
        return self.origin(*further) if further is not None else (own, name)

    @cached_property
    def _given_on(self) -> dict[Origin, Origin]:
        return {
            (module.name, alias.asname or alias.name): (node.module or "", alias.name)
            for module in self.modules.values()
            for node in _at_top(module.tree, for_types=True)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def loads(self) -> dict[str, frozenset[str]]:
        """Map each module to the project's modules that are imported with it, not inside its functions."""
        return {name: frozenset(self._loaded(module) - {name}) for name, module in self.modules.items()}

    def _loaded(self, module: _Module) -> set[str]:
        found = set()
        for node in _at_top(module.tree):
            for name in _named_modules(node):
                if name == _PACKAGE or name.startswith(f"{_PACKAGE}."):
                    parts = name.split(".")[1:]
                    found |= {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        # A package is being imported whenever one of its modules is; that is not a cycle.
        return {name for name in found if name in self.modules and not module.name.startswith(f"{name}.")}

    @cached_property
    def foreign(self) -> dict[str, frozenset[str]]:
        """Map each module to the external packages that it imports at import time."""
        return {
            name: frozenset(
                word.split(".")[0]
                for node in _at_top(module.tree)
                for word in _named_modules(node)
                if word.split(".")[0] not in (_PACKAGE, *sys.stdlib_module_names)
            )
            for name, module in self.modules.items()
        }

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for importer, imported in read_house().edges():
            found[imported.removeprefix(f"{_PACKAGE}.")].add(importer.removeprefix(f"{_PACKAGE}."))
        return found


def _at_top(tree: ast.Module, for_types: bool = False) -> list[ast.stmt]:
    """Yield the imports that run at import time, or for a type checker."""
    found: list[ast.stmt] = []
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif isinstance(node, ast.If | ast.With | ast.Try) and (for_types or not is_type_checking(node)):
            waiting += [inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.stmt)]
    return found


def _named_modules(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


@dataclass
class Merges:
    """The map, checked against a tree: only merges that preserve behaviour are in it."""

    tree: Tree
    starts: tuple[frozenset[str], ...]
    """All modules that every start of the command line imports, below `cleveragents`."""
    targets: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def add(self, wanted: Mapping[str, str], largest: int) -> None:
        """Add the merges that are possible."""
        for source in wanted:
            target = source
            while target in wanted:
                target = wanted[target]
            if source not in self.tree.modules:
                continue
            try:
                self._ensure(source, target, largest)
            except Refused as reason:
                self.refused[source] = f"{target}: {reason}"
            else:
                self.targets[source] = target

    def _ensure(self, source: str, target: str, largest: int) -> None:
        if not (_SOURCES / target.replace(".", "/")).parent.is_dir():
            raise Refused("there is no such package")
        if self.tree.modules[source].is_package or self.tree.modules[source].is_program:
            raise Refused("a package or a program")
        if _is_model(source) != _is_model(target):
            raise Refused("a model must not depend on its users")
        trial = Merges(self.tree, self.starts, {**self.targets, source: target})
        if target in self.tree.modules and self.tree.modules[target].is_program:
            raise Refused("a program stays small")
        cluster = trial.cluster(target)
        if (lines := joined_parts(self.tree, cluster).text.count("\n")) > largest:
            raise Refused(f"{lines} lines together")
        self._ensure_start(cluster)
        if circle := trial.circle(target):
            raise Refused(f"an import cycle: {' '.join(sorted(circle))}")

    def cluster(self, target: str) -> list[str]:
        """Return the merged modules, the target first if it exists already."""
        sources = [source for source, other in self.targets.items() if other == target]
        return [target, *sources] if target in self.tree.modules else sources

    def _ensure_start(self, cluster: list[str]) -> None:
        """Raise `Refused` if a merge makes a module load an external package, or the start load a module,
        that it did not load before.
        """
        for hot in self.starts:
            if {name in hot for name in cluster} == {True, False}:
                more = {
                    other for name in cluster for other in self.tree.foreign[name] | self.tree.loads[name]
                }
                more -= hot | set(cluster)
                if more:
                    raise Refused(f"the start would load {' '.join(sorted(more))}")
        whole = frozenset[str]().union(*(self._foreign_reach(name) for name in cluster))
        for name in cluster:
            # The package itself imports only for type checkers.
            for importer in self.tree.importers[name] - set(cluster) - {_PACKAGE}:
                gained = whole - self._foreign_reach(name) - self._foreign_reach(importer) - _LIGHT
                if gained:
                    raise Refused(f"{importer} would load {' '.join(sorted(gained))} with {name}")

    def _foreign_reach(self, name: str) -> frozenset[str]:
        seen, waiting = {name}, [name]
        while waiting:
            waiting += (more := self.tree.loads[waiting.pop()] - seen)
            seen |= more
        return frozenset(package for one in seen for package in self.tree.foreign[one])

    def circle(self, target: str) -> set[str]:
        """Return modules that form a new import cycle with the target."""
        loads: dict[str, set[str]] = defaultdict(set)
        for name, others in self.tree.loads.items():
            loads[self.targets.get(name, name)] |= {self.targets.get(other, other) for other in others}
        before = {
            self.targets.get(one, one)
            for name in self.cluster(target)
            for one in _on_circle(self.tree.loads, name)
        }
        return _on_circle(loads, target) - before - {target}

    def moves(self) -> Moves:
        return Moves(self.targets, {})


def _on_circle(loads: Mapping[str, Iterable[str]], name: str) -> set[str]:
    back: dict[str, set[str]] = defaultdict(set)
    for one, others in loads.items():
        for other in others:
            if other != one:
                back[other].add(one)
    return _reached(loads, name) & _reached(back, name)


def _reached(edges: Mapping[str, Iterable[str]], name: str) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for other in edges.get(waiting.pop(), ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def _is_model(name: str) -> bool:
    return name.split(".")[1:2] == ["model"]


def joined_parts(tree: Tree, names: Iterable[str]) -> Joined:
    return joined([Part(name, tree.modules[name].text, tree.origin) for name in names])


def small_modules(tree: Tree, features: Iterable[str]) -> dict[str, str]:
    """Return splinters of the features: each small module with its single importer in the same feature."""
    found = {}
    for name, module in tree.modules.items():
        importers = tree.importers[name]
        if module.is_package or module.is_program or module.lines >= _SMALL or len(importers) != 1:
            continue
        [importer] = importers
        feature = name.split(".")[0]
        one_package = importer.split(".")[0] == feature and not tree.modules[importer].is_package
        if feature in features and one_package and name in tree.loads[importer]:
            found[name] = importer
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Merge modules as merges.toml says.")
    parser.add_argument("--check", action="store_true", help="only report what would be refused")
    parser.add_argument(
        "--propose", action="store_true", help="print the map of small modules with one importer"
    )
    parser.add_argument("--imports", action="store_true", help="import each merged module on its own")
    given = parser.parse_args()
    wanted = tomllib.loads((_ROOT / "merges.toml").read_text())["merges"]
    if given.imports:
        sys.exit(_import_each(sorted(set(wanted.values()))))
    tree = Tree.read()
    merges = Merges(tree, _loaded_at_start())
    if given.propose:
        _propose(merges)
        return
    merges.add(wanted, largest=_LARGE)
    for source, reason in merges.refused.items():
        print(f"refused: {source} -> {reason}")
    print(f"{len(merges.targets)} modules into {len(set(merges.targets.values()))}")
    if not given.check:
        _merge(merges)


def _propose(merges: Merges) -> None:
    tree = merges.tree
    features = {name.split(".")[0] for name in tree.modules} - set(_NOT_YET)
    documented = _documented()
    wanted = {one: other for one, other in small_modules(tree, features).items() if one not in documented}
    merges.add(wanted, largest=_LARGE)
    print("[merges]")
    for source, target in sorted(merges.targets.items()):
        print(f'"{source}" = "{target}"')
    for source, reason in merges.refused.items():
        print(f"# refused: {source} -> {reason}")


def _import_each(names: list[str]) -> int:
    """Return the number of modules that cannot be imported on their own."""
    failed = 0
    for name in names:
        command = [sys.executable, "-c", f"import {_PACKAGE}.{name}"]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            failed += 1
            print(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    return failed


def _documented() -> set[str]:
    """Return the modules that documents tell users to import, and those with a kept path of 0.1.0."""
    moved = (_SOURCES / "moved.py").read_text(encoding="utf-8")
    found = set(_TARGET.findall(moved))
    for path in _git("ls-files", "*.md", "*.robot").splitlines():
        text = (_ROOT / path).read_text(encoding="utf-8")
        found.update(re.findall(rf"\b{_PACKAGE}\.([a-z_0-9.]+[a-z_0-9])", text))
    return found


def _loaded_at_start() -> tuple[frozenset[str], ...]:
    """Run the command line in its usual ways and return the modules it imported."""
    with tempfile.TemporaryDirectory() as home:
        return tuple(_loaded_by(words, home) for words in _STARTS)


def _loaded_by(words: tuple[str, ...], home: str) -> frozenset[str]:
    command = [sys.executable, "-X", "importtime", "-m", _PACKAGE, *words]
    surroundings = {"HOME": home, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(_SOURCES.parent)}
    done = subprocess.run(command, cwd=home, env=surroundings, capture_output=True, text=True, check=True)
    found = {line.split("|")[2].strip() for line in done.stderr.splitlines() if line.count("|") == 2}
    own = {name.removeprefix(f"{_PACKAGE}.") for name in found}
    return frozenset(own | {name.split(".")[0] for name in found})


def _merge(merges: Merges) -> None:
    touched: set[str] = set()
    renamed: dict[Origin, str] = {}
    for target in dict.fromkeys(merges.targets.values()):
        whole = joined_parts(merges.tree, merges.cluster(target))
        renamed |= whole.renamed
        place = _SOURCES / f"{target.replace('.', '/')}.py"
        place.write_text(whole.text, encoding="utf-8")
        touched.add(str(place.relative_to(_ROOT)))
    _git("add", "-f", *touched)
    for source in merges.targets:
        _git("rm", "-q", str(merges.tree.modules[source].path.relative_to(_ROOT)))
    for path in _git("ls-files").splitlines():
        if Path(path).suffix in SUFFIXES and path not in _OURS:
            file = _ROOT / path
            text = file.read_text(encoding="utf-8")
            changed = _rewritten(merges, renamed, path, text)
            if changed != text:
                file.write_text(changed, encoding="utf-8")
                touched.add(path)
    python = sorted(path for path in touched if path.endswith(".py"))
    # Sorted imports and names are shorter, and the formatter writes shorter ones differently.
    for words in (["format", "-q"], ["check", "-q", "--fix"], ["format", "-q"], ["check", "--fix"]):
        subprocess.run(["ruff", *words, *python], cwd=_ROOT, check=False)
    _git("add", "-A")


def _rewritten(merges: Merges, renamed: Mapping[Origin, str], path: str, text: str) -> str:
    if path in ("moves.toml", "src/cleveragents/moved.py", "src/cleveragents/__init__.py"):
        return _TARGET.sub(lambda found: f'"{merges.targets.get(found[1], found[1])}"', text)
    for (module, name), new in renamed.items():
        if path.endswith(".py") and re.search(rf"\b{name}\b", text):
            text = _private_renamed(module, name, new, path, text)
    if path == "tests/mutants/explained.py":
        text = _EXPLAINED.sub(lambda found: _explained(merges, found), text)
    changed = rewritten(merges.moves(), path, text)
    return _keys_once(changed) if path.startswith("tests/") and changed != text else changed


def _private_renamed(module: str, name: str, new: str, path: str, text: str) -> str:
    """Return the text with a private name replaced where it is imported or named in strings."""
    text = text.replace(f"{_PACKAGE}.{module}.{name}", f"{_PACKAGE}.{module}.{new}")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == f"{_PACKAGE}.{module}":
            before = ast.get_source_segment(text, node) or ""
            if any(alias.name == name for alias in node.names):
                text = text.replace(before, re.sub(rf"\b{name}\b", f"{new} as {name}", before))
        elif isinstance(node, ast.ImportFrom) and f"{_PACKAGE}.{module}" in _named_modules(node):
            print(f"check by hand: {path} may use {name} of {module}, which is now {new}")
    return text


def _explained(merges: Merges, found: re.Match[str]) -> str:
    """Return a mutant's key with its new file name.

    The key has only a file name; its definition identifies the module.
    """
    for source, target in merges.targets.items():
        if source.rpartition(".")[2] == found[1]:
            names = {getattr(node, "name", "") for node in merges.tree.modules[source].tree.body}
            if found[2] in names:
                return f'"{target.rpartition(".")[2]}.py::{found[2]}'
    return found[0]


def _keys_once(text: str) -> str:
    """Join lists whose keys have become the same."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Dict):
            continue
        places: dict[str, list[int]] = defaultdict(list)
        for place, key in enumerate(node.keys):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                places[key.value].append(place)
        twice = [found for found in places.values() if len(found) > 1]
        if twice and all(
            isinstance(node.values[one], ast.List | ast.Name) for found in twice for one in found
        ):
            return _keys_once(_put_together(text, node, twice[0]))
    return text


def _put_together(text: str, node: ast.Dict, places: list[int]) -> str:
    first, second = places[0], places[1]
    elements = [one for place in (first, second) for one in _elements(text, node.values[place])]
    told = ", ".join(dict.fromkeys(elements))
    value = told[1:] if told.startswith("*") and len(set(elements)) == 1 else f"[{told}]"
    key, gone = node.keys[first], node.keys[second]
    if key is None or gone is None:
        raise TypeError("a dictionary without a key")
    lines = text.splitlines(keepends=True)
    del lines[gone.lineno - 1 : node.values[second].end_lineno]
    whole = f"{' ' * key.col_offset}{ast.get_source_segment(text, key)}: {value},\n"
    lines[key.lineno - 1 : node.values[first].end_lineno] = [whole]
    return "".join(lines)


def _elements(text: str, value: ast.expr) -> list[str]:
    if isinstance(value, ast.List):
        return [ast.get_source_segment(text, one) or "" for one in value.elts]
    return [f"*{ast.get_source_segment(text, value)}"]


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
