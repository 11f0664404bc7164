"""Go."""

from __future__ import annotations

from collections.abc import Iterable

from cleveragents.context.analysis.language import Language
from cleveragents.context.model.code import Import

__all__ = ["LANGUAGES"]

_QUERY = """
(function_declaration name: (_) @name body: (_) @body) @definition.function
(method_declaration name: (_) @name body: (_) @body) @definition.method
(type_spec name: (_) @name type: (struct_type (_) @body)) @definition.struct
(type_spec name: (_) @name type: (interface_type)) @definition.interface
(type_spec name: (_) @name) @definition.type
(type_alias name: (_) @name) @definition.type
(source_file (const_declaration (const_spec name: (_) @name) @definition.variable))
(source_file (var_declaration (var_spec name: (_) @name) @definition.variable))
(source_file (var_declaration (var_spec_list (var_spec name: (_) @name) @definition.variable)))
(comment) @comment
(interpreted_string_literal_content) @string
(raw_string_literal_content) @string
(import_spec) @import
"""

_KEYWORDS = (
    "break case chan const continue default defer else fallthrough for func go goto if import interface"
    " map package range return select struct switch type var nil true false string int bool byte error"
)


def _imports(spec: str) -> Iterable[Import]:
    yield Import(spec.split()[-1].strip('"`'))


LANGUAGES = (
    Language(
        name="go",
        extensions=("go",),
        package="tree_sitter_go",
        query=_QUERY,
        imports=_imports,
        keywords=frozenset(_KEYWORDS.split()),
    ),
)
