"""TypeScript, with and without JSX: JavaScript with types."""

from __future__ import annotations

from cleveragents.context.analysis.language import Language
from cleveragents.context.analysis.languages import javascript

__all__ = ["LANGUAGES"]

_QUERY = (
    javascript.QUERY
    + """
(abstract_class_declaration name: (_) @name body: (_) @body) @definition.class
(interface_declaration name: (_) @name body: (_) @body) @definition.interface
(enum_declaration name: (_) @name body: (_) @body) @definition.enum
(internal_module name: (_) @name body: (_) @body) @definition.namespace
(module name: (identifier) @name body: (_) @body) @definition.namespace
(type_alias_declaration name: (_) @name) @definition.type
(function_signature name: (_) @name) @definition.declaration
(abstract_method_signature name: (_) @name) @definition.declaration
(public_field_definition name: (_) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.function
(class_body (public_field_definition name: (_) @name) @definition.variable)
"""
)

_KEYWORD_LIST = (
    "abstract any as asserts bigint boolean declare enum implements infer interface is keyof module"
    " namespace never number object private protected public readonly string symbol type unique unknown"
)
_KEYWORDS = javascript.KEYWORDS.union(_KEYWORD_LIST.split())

LANGUAGES = (
    Language(
        name="typescript",
        extensions=("ts", "mts", "cts"),
        package="tree_sitter_typescript",
        entry="language_typescript",
        query=_QUERY,
        imports=javascript.imports,
        keywords=_KEYWORDS,
        interpreters=("deno", "bun"),
    ),
    Language(
        name="tsx",
        extensions=("tsx",),
        package="tree_sitter_typescript",
        entry="language_tsx",
        query=_QUERY + "(jsx_text) @string",
        imports=javascript.imports,
        keywords=_KEYWORDS,
    ),
)
