"""Python."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from cleveragents.context.analysis.language import Language
from cleveragents.context.model.code import Import

__all__ = ["LANGUAGES"]

_QUERY = """
(function_definition name: (identifier) @name body: (_) @body) @definition.function
(class_definition name: (identifier) @name body: (_) @body) @definition.class
(module (expression_statement (assignment left: (identifier) @name) @definition.variable))
(class_definition body: (block (expression_statement
  (assignment left: (identifier) @name) @definition.variable)))
(decorator) @lead
(comment) @comment
(expression_statement . (string (string_content) @doc) .)
(string_content) @string
(import_statement) @import
(import_from_statement) @import
(future_import_statement) @import
"""

_NOISE = re.compile(r"#[^\n]*|[()\\]")


def _imports(statement: str) -> Iterable[Import]:
    words = _NOISE.sub(" ", statement)
    before, _, after = words.partition("import ")
    if not before.strip():
        for taken in after.split(","):
            if module := taken.split():
                yield Import(module[0])
        return
    module_name = "".join(before.split()[1:])
    names = [taken.split() for taken in after.split(",")]
    yield Import(module_name, tuple((name[0], name[-1]) for name in names if name))


LANGUAGES = (
    Language(
        name="python",
        extensions=("py", "pyi", "pyw"),
        package="tree_sitter_python",
        query=_QUERY,
        imports=_imports,
        keywords=frozenset(keyword.kwlist),
        interpreters=("python", "pypy"),
    ),
)
