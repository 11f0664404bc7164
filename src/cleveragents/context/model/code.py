"""Source code in the context pipeline: files, their definitions, and their chunks.

Definitions and chunks depend only on a file's content, so they are computed once per content, whatever the
path, work tree or plan. Lines count from 1, and spans include both ends. The path of a file tells whether it
is a test, documentation or generated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

__all__ = [
    "Chunk",
    "CodeFile",
    "Definition",
    "Field",
    "FileAnalysis",
    "Import",
    "LineSpan",
    "is_code",
    "is_documentation",
    "is_test",
    "kind_of",
]


# A package may ship a part named `test` or `testing`, so these count only at the top level.
_TEST = re.compile(
    r"(?:^|/)(?:tests|__tests__|specs?|testsuite|testdata)/|^(?:[^/]{1,40}/)?src/test/|^test/"
    r"|(?:^|/)(?:test_|tests\.)[^/]{1,200}$|_tests?\.[^/]{1,20}$|(?:^|/)conftest\.py$"
    r"|\.(?:test|spec)\.[a-z]{1,4}$|_spec\.rb$",
    re.IGNORECASE,
)
_TEST_CLASS = re.compile(r"Tests?\.(?:java|kt|scala|cs)$")
_DOCUMENTATION = frozenset({"md", "rst", "txt", "adoc", "markdown", "mdx", "html"})
_DOCUMENTATION_DIRECTORY = re.compile(r"(?:^|/)(?:docs?|documentation)/", re.IGNORECASE)
_CODE = frozenset(
    {
        *("py", "pyi", "pyx", "pxd", "js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "go", "rs"),
        *(
            "java",
            "kt",
            "scala",
            "c",
            "h",
            "cc",
            "cpp",
            "cxx",
            "hh",
            "hpp",
            "hxx",
            "rb",
            "php",
            "cs",
            "swift",
        ),
        *("sh", "lua", "pl", "r", "jl", "m", "ex", "exs", "erl", "hs", "ml", "clj", "dart", "sql", "proto"),
    }
)
_REMEMBERED = 1 << 16  # every question checks every path


class Field(str, Enum):
    """The part of a chunk that contains a term."""

    BODY = "body"  # everything in it, names both split into words and whole
    NAME = "name"  # names defined in it, split and whole
    DOC = "doc"  # comments and documentation strings
    STRING = "string"  # other string literals
    REFERENCE = "reference"  # names used in it, whole


@dataclass(frozen=True, slots=True, order=True)
class LineSpan:
    """Lines `first` to `last`."""

    first: int
    last: int

    def contains(self, other: LineSpan) -> bool:
        return self.first <= other.first and other.last <= self.last


@dataclass(frozen=True, slots=True)
class Definition:
    """A class, function, method or similar.

    `parent` is the position of the enclosing definition in its file.
    """

    name: str
    kind: str
    span: LineSpan
    signature: LineSpan
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Import:
    """An import. `module` is written as in the source, including leading dots. `names` pairs each imported
    name with its local name, and is empty if the module itself is imported.
    """

    module: str
    names: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a file that is searched as a unit: a function, the head of a class, or the lines between.

    `definition` is the position of its definition in the file; None for lines outside of all definitions.
    `terms` counts the terms of each field.
    """

    span: LineSpan
    definition: int | None
    terms: Mapping[Field, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileAnalysis:
    """The analysis of one file's content.

    Chunks are in order, do not overlap, and cover the file. `language` is "text" if no grammar applies.
    `opaque` is the reason why the content is not searched (binary, too large, generated); such a content has
    no chunks.
    """

    language: str
    lines: int
    definitions: tuple[Definition, ...] = ()
    imports: tuple[Import, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    opaque: str | None = None

    def qualified(self, position: int) -> str:
        """Return the dotted name of a definition within its file."""
        definition = self.definitions[position]
        if definition.parent is None:
            return definition.name
        return f"{self.qualified(definition.parent)}.{definition.name}"


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A file of a snapshot. `digest` is git's object name of its content. `document` is the number of its
    content in the snapshot; files with the same content share it.
    """

    path: str
    digest: str
    size: int
    document: int


def is_test(path: str) -> bool:
    return bool(_TEST.search(path) or _TEST_CLASS.search(path))


@lru_cache(_REMEMBERED)
def is_documentation(path: str) -> bool:
    return _extension(path) in _DOCUMENTATION or bool(_DOCUMENTATION_DIRECTORY.search(path))


def is_code(path: str) -> bool:
    return _extension(path) in _CODE


def _extension(path: str) -> str:
    return path.rpartition(".")[2].lower()


@lru_cache(_REMEMBERED)
def kind_of(path: str) -> str:
    """Return `source`, `test`, or `text` for everything that is not code."""
    if not is_code(path):
        return "text"
    return "test" if is_test(path) else "source"
