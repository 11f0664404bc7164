"""Shared code for tests of the code index: repositories, and a simple analysis that is counted."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cleveragents.context.code_index import CodePlace, CodeSnapshot
from cleveragents.context.index.build.builder import IndexBuilder
from cleveragents.context.index.sqlite_code_index import SqliteCodeIndex
from cleveragents.context.model.code import Chunk, Definition, Field, FileAnalysis, Import, LineSpan

__all__ = ["COUNTED", "Bench", "Tree", "analyse", "found_in", "linger", "old"]

COUNTED = "INDEX_BENCH_COUNTS"
"""The variable that names a file; each analysis adds a line to it."""

_LINES = 4
_QUICKLY = (
    "user.name=Somebody",
    "user.email=somebody@example.org",
    "commit.gpgsign=false",
    "gc.auto=0",
    "maintenance.auto=false",
)


def analyse(path: str, data: bytes) -> FileAnalysis:
    """Analyse a file: four lines make a chunk; words are terms, `def` precedes a name, `import` a module.

    `KILL` in a file ends the process, `RAISE` raises.
    """
    counts = os.environ.get(COUNTED)
    if counts:
        descriptor = os.open(counts, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{path}\n".encode())
        os.close(descriptor)
    if b"\0" in data:
        return FileAnalysis("text", 0, opaque="binary")
    text = data.decode("utf-8", "replace")
    if "KILL" in text:
        os._exit(9)
    if "RAISE" in text:
        raise ValueError(path)
    lines = text.split("\n")
    definitions = tuple(
        Definition(line.split()[1], "function", LineSpan(number, number), LineSpan(number, number))
        for number, line in enumerate(lines, 1)
        if line.startswith("def ")
    )
    imports = tuple(Import(line.split()[1], (("a", "b"),)) for line in lines if line.startswith("import "))
    chunks = []
    for at in range(0, len(lines), _LINES):
        own = lines[at : at + _LINES]
        span = LineSpan(at + 1, at + len(own))
        words = Counter(" ".join(own).lower().split())
        names = Counter(line.split()[1].lower() for line in own if line.startswith("def "))
        of = next((i for i, one in enumerate(definitions) if span.contains(one.span)), None)
        chunks.append(Chunk(span, of, {Field.BODY: words, Field.NAME: names}))
    return FileAnalysis("text", len(lines), definitions, imports, tuple(chunks))


def linger(path: str, data: bytes) -> FileAnalysis:
    """Write the pid to the pipe named by the variable, and hang."""
    with Path(os.environ[COUNTED]).open("a") as pipe:
        pipe.write(f"{os.getpid()}\n")
    while True:
        signal.pause()


def old(path: Path) -> None:
    """Give the file an old timestamp, so that its time can be trusted."""
    os.utime(path, ns=(1_600_000_000 * 10**9, 1_600_000_000 * 10**9))


@dataclass
class Tree:
    """A directory of files, which may be a repository."""

    root: Path

    def write(self, files: Mapping[str, str | bytes]) -> Tree:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return self

    def git(self, *arguments: str) -> str:
        ran = subprocess.run(
            ["git", *(word for setting in _QUICKLY for word in ("-c", setting)), *arguments],
            cwd=self.root,
            check=True,
            capture_output=True,
            env=_environment(),
        )
        return ran.stdout.decode().strip()

    def commit(self, message: str = "change") -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


@dataclass
class Bench:
    """A separate index, and any number of trees."""

    directory: Path
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> Path:
        return self.directory / "counts"

    @property
    def indexes(self) -> Path:
        return self.directory / "indexes"

    @property
    def file(self) -> Path:
        """The only index file."""
        (found,) = self.indexes.glob("*.db")
        return found

    def index(self, **options: Any) -> SqliteCodeIndex:
        told = {"analyse": "tests.index_bench:analyse", "version": 1, "workers": 2, **self.options}
        own = {name: options.pop(name) for name in list(options) if name in IndexBuilder.__dataclass_fields__}
        return SqliteCodeIndex(self.indexes, builder=IndexBuilder(**{**told, **own}), **options)

    def directory_tree(self, name: str = "plain") -> Tree:
        root = self.directory / name
        root.mkdir()
        return Tree(root)

    def repository(self, name: str = "repository") -> Tree:
        tree = self.directory_tree(name)
        tree.git("init", "--quiet", "--template=", "--initial-branch=main")
        return tree

    def open(
        self, tree: Tree | Path, commit: str | None = None, **options: Any
    ) -> AbstractContextManager[CodeSnapshot]:
        root = tree.root if isinstance(tree, Tree) else tree
        return self.index().open(CodePlace(root, commit), **options)

    def place(self, tree: Tree) -> CodePlace:
        return CodePlace(tree.root)

    def paths(self, tree: Tree | Path, commit: str | None = None) -> list[str]:
        with self.open(tree, commit) as snapshot:
            return [file.path for file in snapshot.files]

    def file_digest(self, tree: Tree, path: str) -> str:
        with self.open(tree) as snapshot:
            return next(file.digest for file in snapshot.files if file.path == path)

    def analysed(self) -> list[str]:
        """Return the paths analysed since the last call."""
        told = self.counts.read_text().split("\n")[:-1] if self.counts.exists() else []
        self.counts.unlink(missing_ok=True)
        return sorted(told)


def found_in(snapshot: CodeSnapshot, term: str, kind: Field = Field.BODY) -> dict[str, list[tuple[int, int]]]:
    """Return by path: the first line of each chunk with the term, and its count."""
    paths: dict[int, list[str]] = {}
    for file in snapshot.files:
        paths.setdefault(file.document, []).append(file.path)
    told = snapshot.postings(kind, [term]).get(term)
    found: dict[str, list[tuple[int, int]]] = {}
    if told is None:
        return found
    assert sorted(set(told.chunks.tolist())) == told.chunks.tolist()
    for chunk, count in zip(told.chunks.tolist(), told.counts.tolist(), strict=True):
        document = int(snapshot.chunks.document_of[chunk])
        within = chunk - int(snapshot.chunks.first_chunk[document])
        span = snapshot.analyses([document])[document].chunks[within].span
        for path in paths[document]:
            found.setdefault(path, []).append((span.first, int(count)))
    return found
