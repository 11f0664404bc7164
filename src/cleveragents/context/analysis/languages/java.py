"""Java."""

from __future__ import annotations

from collections.abc import Iterable

from cleveragents.context.analysis.language import Language
from cleveragents.context.model.code import Import

__all__ = ["LANGUAGES"]

_QUERY = """
(class_declaration name: (_) @name body: (_) @body) @definition.class
(record_declaration name: (_) @name body: (_) @body) @definition.class
(interface_declaration name: (_) @name body: (_) @body) @definition.interface
(annotation_type_declaration name: (_) @name body: (_) @body) @definition.interface
(enum_declaration name: (_) @name body: (_) @body) @definition.enum
(method_declaration name: (_) @name body: (_) @body) @definition.method
(method_declaration name: (_) @name !body) @definition.declaration
(constructor_declaration name: (_) @name body: (_) @body) @definition.method
(compact_constructor_declaration name: (_) @name body: (_) @body) @definition.method
(field_declaration declarator: (variable_declarator name: (_) @name)) @definition.variable
(constant_declaration declarator: (variable_declarator name: (_) @name)) @definition.variable
(line_comment) @comment
(block_comment) @comment
(string_fragment) @string
(multiline_string_fragment) @string
(import_declaration) @import
"""

_KEYWORDS = (
    "abstract assert boolean break byte case catch char class const continue default do double else"
    " enum extends final finally float for goto if implements import instanceof int interface long"
    " native new package private protected public return short static strictfp super switch synchronized"
    " this throw throws transient try var void volatile while true false null record String Override"
)


def _imports(statement: str) -> Iterable[Import]:
    words = statement.rstrip("; \t\n").split()
    path = words[-1]
    module, _, last = path.rpartition(".")
    if last == "*" or "static" in words:
        yield Import(module, ((last, last),))
    else:
        yield Import(path)


LANGUAGES = (
    Language(
        name="java",
        extensions=("java",),
        package="tree_sitter_java",
        query=_QUERY,
        imports=_imports,
        keywords=frozenset(_KEYWORDS.split()),
    ),
)
