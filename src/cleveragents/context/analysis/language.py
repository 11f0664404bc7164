"""The description of a programming language, and the detection of a file's language.

The captures of a query are: `definition.KIND`, a definition with its `name` and, if it has one, its `body`;
`doc`, documentation; `string`, the inside of a string literal; `comment`, documentation that belongs to the
definition right below it; `lead` (a decorator, an attribute), which also belongs to the definition below and
extends to the end of its `body` if it has one; and `import`, a whole statement, which `imports` parses.

Definitions of functions, methods and macros are separate chunks; those of variables, types and declarations
never are. All other kinds of definitions contain other definitions.
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
    """A programming language.

    `package` and `entry` name the function that returns the grammar; `interpreters` are names in a script's
    first line; `keywords` are words that are not names.
    """

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
    """A loaded grammar. Any number of threads may use it, each with its own parser."""

    language: tree_sitter.Language
    query: tree_sitter.Query
    roles: tuple[str, ...]
    """The capture of each pattern of the query, apart from name and body."""


@cache
def grammar_of(language: Language) -> Grammar:
    """Load a language's grammar, once per process."""
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
    """Return the language by the extension of `path` or by the interpreter in the first line; None for plain
    text.
    """
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
