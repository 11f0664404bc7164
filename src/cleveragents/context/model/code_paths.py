"""What a path says about a file: whether it is a test, documentation, or something that a tool made."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["is_code", "is_documentation", "is_test", "kind_of"]

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
