"""What a path says about a file: whether it is a test, documentation, or something that a tool made."""

from __future__ import annotations

import re

__all__ = ["is_code", "is_documentation", "is_test", "kind_of"]

_TEST_DIRECTORIES = frozenset(
    {"test", "tests", "testing", "__tests__", "spec", "specs", "testsuite", "testdata"}
)
_TEST_NAME = re.compile(
    r"(?:^test_|_tests?\.|^tests?\.|^conftest\.py$|\.(?:test|spec)\.[a-z]{1,4}$|_spec\.rb$|Tests?\.(?:java|kt)$)"
)
_DOCUMENTATION = frozenset({"md", "rst", "txt", "adoc", "markdown", "mdx", "html"})
_DOCUMENTATION_DIRECTORIES = frozenset({"doc", "docs", "documentation"})
_CODE = frozenset(
    {"py", "pyi", "pyx", "pxd", "js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "go", "rs",
     "java", "kt", "scala", "c", "h", "cc", "cpp", "cxx", "hh", "hpp", "hxx", "rb", "php", "cs", "swift",
     "sh", "lua", "pl", "r", "jl", "m", "ex", "exs", "erl", "hs", "ml", "clj", "dart", "sql", "proto"}
)  # fmt: skip


def is_test(path: str) -> bool:
    *directories, name = path.split("/")
    return any(part.lower() in _TEST_DIRECTORIES for part in directories) or bool(_TEST_NAME.search(name))


def is_documentation(path: str) -> bool:
    *directories, name = path.split("/")
    if name.rpartition(".")[2].lower() in _DOCUMENTATION:
        return True
    return any(part.lower() in _DOCUMENTATION_DIRECTORIES for part in directories)


def is_code(path: str) -> bool:
    return path.rpartition(".")[2].lower() in _CODE


def kind_of(path: str) -> str:
    """`source`, `test`, or `text` for all that is no code."""
    if not is_code(path):
        return "text"
    return "test" if is_test(path) else "source"
