"""What must be told of a language so that its files can be analysed, and which language a file is in.

The query names its captures so: `definition.KIND` is something that is defined, with its `name` and, if it
has one, its `body`; `doc` is documentation, `string` the inside of a string literal; `comment` is
documentation too, and belongs to the definition right below it, as does a `lead` (a decorator, an attribute),
which goes on to the end of its `body` if it has one; `import` is a whole statement, which `imports` reads.
Functions, methods and macros are chunks of their own; variables, types and declarations never are; all else
contains others.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from cleveragents.context.model.code import Import

if TYPE_CHECKING:
    import tree_sitter

__all__ = ["Grammar", "Language", "grammar_of", "language_of"]

_CAPTURE = re.compile(r"@([a-z.]+)")


@dataclass(frozen=True, slots=True)
class Language:
    """`package` and `entry` name the function that gives the grammar; `interpreters` are those of a script's
    first line; `keywords` are words that refer to nothing."""

    name: str
    extensions: tuple[str, ...]
    package: str
    query: str
    imports: Callable[[str], Iterable[Import]]
    keywords: frozenset[str]
    entry: str = "language"
    interpreters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language that has been loaded. Any number of threads may parse with it, each with its own parser."""

    language: tree_sitter.Language
    query: tree_sitter.Query
    roles: tuple[str, ...]
    """What each pattern of the query captures, apart from name and body."""


@cache
def grammar_of(language: Language) -> Grammar:
    """Loads the language's grammar, once per process."""
    import tree_sitter

    package = importlib.import_module(language.package)
    grammar = tree_sitter.Language(getattr(package, language.entry)())
    query = tree_sitter.Query(grammar, language.query)
    source = language.query.encode()
    bounds = [query.start_byte_for_pattern(number) for number in range(query.pattern_count)]
    patterns = [source[start:end] for start, end in zip(bounds, [*bounds[1:], None], strict=True)]
    return Grammar(grammar, query, tuple(_role(pattern) for pattern in patterns))


def _role(pattern: bytes) -> str:
    captured: set[str] = set(_CAPTURE.findall(pattern.decode()))
    (role,) = captured - {"name", "body"}
    return role


def language_of(path: str, head: bytes) -> Language | None:
    """By the extension of `path`, or by the interpreter that the first line names; None for plain text."""
    name = path.rpartition("/")[2]
    stem, _, extension = name.rpartition(".")
    if stem:
        return _languages().get(extension.lower())
    if not head.startswith(b"#!"):
        return None
    words = head.partition(b"\n")[0].decode("ascii", "ignore").replace("/", " ").split()
    return next((found for word in words if (found := _interpreters().get(word.rstrip("0123456789.")))), None)


@cache
def _all_languages() -> tuple[Language, ...]:
    from cleveragents.context.analysis import languages

    found: list[Language] = []
    for module in pkgutil.iter_modules(languages.__path__, f"{languages.__name__}."):
        found += importlib.import_module(module.name).LANGUAGES
    return tuple(found)


@cache
def _languages() -> dict[str, Language]:
    return {extension: language for language in _all_languages() for extension in language.extensions}


@cache
def _interpreters() -> dict[str, Language]:
    return {word: language for language in _all_languages() for word in language.interpreters}
