"""C, and the parts that C++ shares with it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cleveragents.context.analysis.language import Language
from cleveragents.context.model.code import Import

__all__ = ["KEYWORDS", "LANGUAGES", "QUERY", "imports"]

# A declarator describes what surrounds the name: pointers, and in C++ references.
QUERY = """
(function_definition declarator: (function_declarator declarator: (_) @name) body: (_) @body)
  @definition.function
(function_definition declarator: (_ (function_declarator declarator: (_) @name)) body: (_) @body)
  @definition.function
(function_definition declarator: (_ (_ (function_declarator declarator: (_) @name))) body: (_) @body)
  @definition.function
(declaration declarator: (function_declarator declarator: (identifier) @name)) @definition.declaration
(declaration declarator: (_ (function_declarator declarator: (identifier) @name))) @definition.declaration
(struct_specifier name: (_) @name body: (_) @body) @definition.struct
(union_specifier name: (_) @name body: (_) @body) @definition.union
(enum_specifier name: (_) @name body: (_) @body) @definition.enum
(type_definition declarator: (type_identifier) @name) @definition.type
(preproc_def name: (_) @name) @definition.variable
(preproc_function_def name: (_) @name) @definition.variable
(translation_unit (declaration declarator: (init_declarator declarator: (_) @name)) @definition.variable)
(comment) @comment
(string_content) @string
(preproc_include) @import
"""

_KEYWORD_LIST = (
    "auto bool break case char const continue default define do double else endif enum extern float for"
    " goto if ifdef ifndef include inline int long register restrict return short signed sizeof static"
    " struct switch typedef union unsigned void volatile while NULL size_t"
)
KEYWORDS = frozenset(_KEYWORD_LIST.split())

_INCLUDED = re.compile(r"""["<]([^">\n]+)[">]""")


def imports(statement: str) -> Iterable[Import]:
    """Parse an include. A file in quotes is searched next to the including file, so it is returned as a
    relative path.
    """
    included = _INCLUDED.search(statement)
    if included is not None:
        beside = included[0].startswith('"') and "/" not in included[1]
        yield Import(f"./{included[1]}" if beside else included[1])


LANGUAGES = (
    Language(
        name="c",
        extensions=("c",),
        package="tree_sitter_c",
        query=QUERY,
        imports=imports,
        keywords=KEYWORDS,
    ),
)
