"""Small programming tasks with hidden tests, made from two public collections of exercises.

`exercism/python` has exercises with instructions, a stub, tests and an example; `jkoppel/QuixBugs` has small
programs with one bug each, and their test cases. Nothing of them is in this repository: `load` reads clones,
bare or not, at the commits of `SOURCES`.

Three kinds of tasks:

- implement: an exercise of difficulty 1 to 4; the goal is its instructions, the repository has its stub;
- fix: a program of QuixBugs; the goal says that it has a bug;
- refactor: the example of an exercise; the goal asks to move one of its functions to a new module, or to
  rename it and keep the old name as an alias.

The repository of a task has the first third of its tests (at least two), or every other case of a program
with a bug; a solution must pass all of them. `select` takes the tasks in the order of a hash of their names,
those for development first. It skips a task whose tests do not show the bug, or whose known solution fails or
takes too long; on a busy machine that depends on the load, so `TASKS` keeps the selection.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

__all__ = ["SETS", "SOURCES", "Task", "check_task", "load", "select", "tests_pass", "write_files"]

SOURCES = {
    "exercism/python": "9eb657d4507d91efef99f484e7f2a1f4074911b5",
    "jkoppel/QuixBugs": "4257f44b0ff1181dedaedee6a447e133219fcebf",
}
SETS = {
    "dev": {"implement": 5, "fix": 5, "refactor": 2},
    "report": {"implement": 10, "fix": 10, "refactor": 4},
}
TASKS: dict[str, tuple[str, ...]] = {
    "dev": (
        "implement/matrix",
        "implement/nth-prime",
        "implement/leap",
        "implement/pythagorean-triplet",
        "implement/raindrops",
        "fix/next_palindrome",
        "fix/rpn_eval",
        "fix/find_in_sorted",
        "fix/find_first_in_sorted",
        "fix/lcs_length",
        "refactor/bottle-song",
        "refactor/food-chain",
    ),
    "report": (
        "implement/roman-numerals",
        "fix/subsequences",
        "implement/pascals-triangle",
        "fix/flatten",
        "implement/robot-simulator",
        "fix/levenshtein",
        "refactor/run-length-encoding",
        "implement/run-length-encoding",
        "fix/kth",
        "implement/clock",
        "fix/max_sublist_sum",
        "implement/phone-number",
        "fix/sieve",
        "refactor/variable-length-quantity",
        "implement/line-up",
        "fix/get_factors",
        "implement/kindergarten-garden",
        "fix/mergesort",
        "implement/word-count",
        "fix/sqrt",
        "refactor/triangle",
        "implement/prime-factors",
        "fix/pascal",
        "refactor/grains",
    ),
}
_HARDEST = 4
_TEST_SECONDS = 120
_LEAST_TESTS = 2
_DECIDE_TESTS = frozenset({"conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml"})
_EXERCISES = "exercises/practice"
_NAMES_OF = """\
import ast
from pathlib import Path


def names_of(file):
    return [node.name for node in ast.parse(Path(file).read_text()).body if hasattr(node, "name")]


"""


@dataclass(frozen=True, slots=True)
class Task:
    """One task: what the agent gets (`goal`, `files`) and what it does not get (`hidden`, `solution`)."""

    name: str
    kind: str
    goal: str
    source: str
    test: str
    files: Mapping[str, str] = field(repr=False)
    hidden: Mapping[str, str] = field(repr=False)
    solution: Mapping[str, str] = field(repr=False)


def load(clones: Mapping[str, Path], chosen: str) -> list[Task]:
    """Return the tasks of the set `chosen`, `dev` or `report`: those of `TASKS`."""
    names = TASKS[chosen]
    tasks = {
        task.name: task for kind in SETS[chosen] for task in _candidates(clones, kind) if task.name in names
    }
    return [tasks[name] for name in names]


def select(clones: Mapping[str, Path], chosen: str) -> list[Task]:
    """Select the tasks of a set anew. It takes minutes, so `TASKS` keeps the result."""
    tasks = []
    for kind, count in SETS[chosen].items():
        first = 0 if chosen == "dev" else SETS["dev"][kind]
        usable = (task for task in _candidates(clones, kind) if check_task(task))
        tasks += list(islice(usable, first, first + count))
    return tasks


def _candidates(clones: Mapping[str, Path], kind: str) -> Iterator[Task]:
    """Yield the tasks of a kind, in the order of the selection."""
    if kind == "fix":
        return _programs(clones["jkoppel/QuixBugs"])
    return _exercises(clones["exercism/python"], _implement if kind == "implement" else _refactor)


def check_task(task: Task) -> bool:
    """Tell whether the known solution passes the hidden tests and the task as it is given does not.

    A bug must also show in the tests that the agent sees.
    """
    shown = {} if task.kind == "fix" else task.hidden
    solved = {**task.files, **task.solution, **task.hidden}
    python = Path(sys.executable)
    return tests_pass(solved, python) and not tests_pass({**task.files, **shown}, python)


def tests_pass(files: Mapping[str, str], python: Path) -> bool:
    """Run all tests of the files in a directory of their own, the only one that they can write, without a
    network: a model wrote the code.
    """
    with tempfile.TemporaryDirectory() as directory:
        write_files(
            Path(directory), {name: text for name, text in files.items() if name not in _DECIDE_TESTS}
        )
        isolated = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/"]
        isolated += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run", "--clearenv"]
        isolated += [
            "--setenv",
            "PATH",
            "/usr/bin:/bin",
            "--bind",
            directory,
            directory,
            "--chdir",
            directory,
        ]
        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "."]
        command = [*isolated, "--", str(python), "-m", "pytest", *options]
        try:
            ended = subprocess.run(command, capture_output=True, timeout=_TEST_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return False
        # The code under test could end the process itself, before any test has run.
        return ended.returncode == 0 and b" passed in " in ended.stdout


def write_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write the files below the directory."""
    for name, text in files.items():
        place = directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")


def _implement(slug: str, read: Callable[[str], str]) -> Task:
    source, suite = _parts(slug, read)
    return Task(
        name=f"implement/{slug}",
        kind="implement",
        goal=f"Implement {source}. The tests in test_{source} must pass.\n\n{_instructions(read)}",
        source=source,
        test=f"test_{source}",
        files={source: read(source), f"test_{source}": _first_tests(suite)},
        hidden={f"test_{source}": suite},
        solution={source: read(".meta/example.py")},
    )


def _refactor(slug: str, read: Callable[[str], str]) -> Task:
    source, suite = _parts(slug, read)
    example = read(".meta/example.py")
    tree = ast.parse(example)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if len(functions) < 2 or any(isinstance(node, ast.ClassDef) for node in tree.body):
        raise LookupError(slug)
    function = max(functions, key=lambda node: (not node.args.defaults, node.name))
    recipe = _move if _rank(f"recipe {slug}")[0] < "8" else _rename
    goal, asked, solution = recipe(source, example, function)
    return Task(
        name=f"refactor/{slug}",
        kind="refactor",
        goal=f"{goal} The tests in test_{source} must still pass.",
        source=source,
        test=f"test_{source}",
        files={source: example, f"test_{source}": _first_tests(suite)},
        hidden={f"test_{source}": suite, "test_asked.py": _NAMES_OF + asked},
        solution=solution,
    )


def _move(source: str, example: str, function: ast.FunctionDef) -> tuple[str, str, dict[str, str]]:
    """Return goal, hidden test and solution of a move. The solution takes imports and constants along."""
    old = function.name
    new = f"{source.removesuffix('.py')}_{old}"
    goal = (
        f"Move the function `{old}` from {source} to a new module {new}.py, with the constants and imports "
        f"that it needs. {source} imports it from there."
    )
    asked = (
        f"def test_moved():\n    assert {old!r} not in names_of({source!r})\n"
        f"    assert {old!r} in names_of('{new}.py')\n"
    )
    needed = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    shared: list[ast.stmt] = []
    rest: list[ast.stmt] = []
    for node in ast.parse(example).body:
        if isinstance(node, ast.FunctionDef) and node.name == old:
            continue
        names = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(name, ast.Name) and name.id in needed for name in names):
            shared.append(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            shared.append(node)
        rest.append(node)
    imported = ast.parse(f"from {new} import {old}").body
    moved = {
        f"{new}.py": ast.unparse(ast.Module([*shared, function], [])),
        source: ast.unparse(ast.Module([*imported, *rest], [])),
    }
    return goal, asked, moved


def _rename(source: str, example: str, function: ast.FunctionDef) -> tuple[str, str, dict[str, str]]:
    """Return goal, hidden test and solution of a renaming."""
    old, module = function.name, source.removesuffix(".py")
    new = f"compute_{old}"
    goal = (
        f"In {source}, rename the function `{old}` to `{new}` and use the new name wherever {source} calls "
        f"it. Keep `{old}` as an alias of it (`{old} = {new}`)."
    )
    asked = (
        f"import {module}\n\n\ndef test_renamed():\n    names = names_of({source!r})\n"
        f"    assert {new!r} in names and {old!r} not in names\n"
        f"    assert {module}.{old} is {module}.{new}\n"
    )
    tree = ast.parse(example)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
        if isinstance(node, ast.FunctionDef) and node.name == old:
            node.name = new
    return goal, asked, {source: f"{ast.unparse(tree)}\n\n\n{old} = {new}\n"}


def _programs(clone: Path) -> Iterator[Task]:
    read = _reader(clone, SOURCES["jkoppel/QuixBugs"])
    cases = [
        line.removesuffix(".json") for line in read("json_testcases").splitlines() if line.endswith(".json")
    ]
    for name in sorted(cases, key=_rank):
        rows = [json.loads(line) for line in read(f"json_testcases/{name}.json").splitlines() if line.strip()]
        body = read(f"python_testcases/test_{name}.py")
        head = f"import pytest\n\nfrom {name} import {name}\n\npytest.run_slow = False\ntestdata = %s\n"
        rest = body.split("load_json_testcases(", 1)[1].split("\n", 1)[1]
        few = rows[::2] if len(rows) > _LEAST_TESTS else rows
        program = read(f"python_programs/{name}.py")
        yield Task(
            name=f"fix/{name}",
            kind="fix",
            goal=f"{name}.py has a bug. Fix it. The tests in test_{name}.py must pass.",
            source=f"{name}.py",
            test=f"test_{name}.py",
            files={f"{name}.py": program, f"test_{name}.py": head % few + rest},
            hidden={f"test_{name}.py": head % rows + rest},
            solution={f"{name}.py": read(f"correct_python_programs/{name}.py")},
        )


def _exercises(clone: Path, make: Callable[[str, Callable[[str], str]], Task]) -> Iterator[Task]:
    read = _reader(clone, SOURCES["exercism/python"])
    listed = json.loads(read("config.json"))["exercises"]["practice"]
    slugs = [
        one["slug"] for one in listed if one["difficulty"] <= _HARDEST and one.get("status") != "deprecated"
    ]
    for slug in sorted(slugs, key=lambda slug: _rank(f"{make.__name__} {slug}")):
        with suppress(LookupError):
            yield make(slug, partial(_below, read, f"{_EXERCISES}/{slug}"))


def _below(read: Callable[[str], str], folder: str, name: str) -> str:
    return read(f"{folder}/{name}")


def _parts(slug: str, read: Callable[[str], str]) -> tuple[str, str]:
    """Return the name of the source and the text of its tests."""
    files = json.loads(read(".meta/config.json"))["files"]
    if len(files["solution"]) != 1 or len(files["test"]) != 1:
        raise LookupError(slug)
    return files["solution"][0], read(files["test"][0])


def _instructions(read: Callable[[str], str]) -> str:
    texts = []
    for name in ("instructions.md", "instructions.append.md"):
        try:
            texts.append(read(f".docs/{name}").strip())
        except LookupError:
            continue
    return "\n\n".join(texts)


def _first_tests(suite: str) -> str:
    """Return the suite with the first third of its tests."""
    classes = [node for node in ast.parse(suite).body if isinstance(node, ast.ClassDef)]
    tests = [(outer, node) for outer in classes for node in outer.body if _is_test(node)]
    if not tests:
        raise LookupError("no tests")
    lines = suite.splitlines()
    for outer, node in reversed(tests[max(_LEAST_TESTS, len(tests) // 3) :]):
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        first = min([node.lineno, *(one.lineno for one in decorators)])
        lines[first - 1 : node.end_lineno] = ["    pass"] if node is outer.body[0] else []
    return "\n".join(lines) + "\n"


def _is_test(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test")


def _reader(clone: Path, commit: str) -> Callable[[str], str]:
    """Return a function that reads a file, or lists a folder, of the commit."""

    def read(name: str) -> str:
        command = ["git", "-C", str(clone), "cat-file", "-p", f"{commit}:{name}"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise LookupError(f"{name}: {ended.stderr.strip()}")
        if "\t" in ended.stdout and ended.stdout.startswith(("100", "040", "120")):
            return "\n".join(line.split("\t", 1)[1] for line in ended.stdout.splitlines())
        return ended.stdout

    return read


def _rank(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
