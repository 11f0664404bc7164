"""Source code as the context pipeline knows it: files, what they define, and the pieces they fall into.

All of it follows from a file's content alone, so it is worked out once per content, whichever path, work tree
or plan it is found in. Lines count from 1 and both ends belong to a span.

What a path says about a file: whether it is a test, documentation, or something that a tool made.
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


# A package may have a part called `test` or `testing`, which its users run; so those count only at the top.
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
_REMEMBERED = 1 << 16  # every question asks of every path


class Field(str, Enum):
    """In which part of a chunk a term stands."""

    BODY = "body"  # everything in it, names split into their words and whole
    NAME = "name"  # names that are defined in it, split and whole
    DOC = "doc"  # comments and documentation strings
    STRING = "string"  # other string literals
    REFERENCE = "reference"  # names that are used in it, whole


@dataclass(frozen=True, slots=True, order=True)
class LineSpan:
    """Lines `first` to `last`."""

    first: int
    last: int

    def contains(self, other: LineSpan) -> bool:
        return self.first <= other.first and other.last <= self.last


@dataclass(frozen=True, slots=True)
class Definition:
    """A class, function, method or the like. `parent` is the position of the enclosing one in its file."""

    name: str
    kind: str
    span: LineSpan
    signature: LineSpan
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Import:
    """`module` as it is written, leading dots included; `names` pairs what is taken with what it is called
    here, and is empty when the module itself is taken."""

    module: str
    names: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a file that is searched as one: a function, the head of a class, or what lies between.

    `definition` is the position of what it belongs to, None for the file's own lines. `terms` counts each
    field's terms."""

    span: LineSpan
    definition: int | None
    terms: Mapping[Field, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileAnalysis:
    """What the content of one file says. Chunks are in order, do not overlap, and cover the file.

    `language` is "text" for what no grammar knows; `opaque` says why the content is not searched (binary,
    too large, generated), and then there are no chunks."""

    language: str
    lines: int
    definitions: tuple[Definition, ...] = ()
    imports: tuple[Import, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    opaque: str | None = None

    def qualified(self, position: int) -> str:
        """The dotted name of a definition within its file."""
        definition = self.definitions[position]
        if definition.parent is None:
            return definition.name
        return f"{self.qualified(definition.parent)}.{definition.name}"


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A path of a snapshot. `digest` names its content as git does; `document` numbers distinct contents."""

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
    """`source`, `test`, or `text` for all that is no code."""
    if not is_code(path):
        return "text"
    return "test" if is_test(path) else "source"
