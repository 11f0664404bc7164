"""C++. Headers are read as C++ as well, because most C in them is valid C++."""

from __future__ import annotations

from cleveragents.context.analysis.language import Language
from cleveragents.context.analysis.languages import c

__all__ = ["LANGUAGES"]

_QUERY = (
    c.QUERY
    + """
(class_specifier name: (_) @name body: (_) @body) @definition.class
(namespace_definition name: (_) @name body: (_) @body) @definition.namespace
(concept_definition name: (_) @name) @definition.type
(alias_declaration name: (_) @name) @definition.type
(field_declaration declarator: (function_declarator declarator: (_) @name)) @definition.declaration
(field_declaration declarator: (_ (function_declarator declarator: (_) @name))) @definition.declaration
(field_declaration declarator: (field_identifier) @name) @definition.variable
(raw_string_content) @string
(template_declaration "template" @lead parameters: (_) @body)
"""
)

_KEYWORD_LIST = (
    "alignas catch class concept consteval constexpr const_cast decltype delete dynamic_cast explicit"
    " export false final friend mutable namespace new noexcept nullptr operator override private"
    " protected public reinterpret_cast requires static_assert static_cast template this throw true try"
    " typename using virtual std"
)
_KEYWORDS = c.KEYWORDS.union(_KEYWORD_LIST.split())

LANGUAGES = (
    Language(
        name="cpp",
        extensions=(
            "cpp",
            "cc",
            "cxx",
            "c++",
            "h",
            "hh",
            "hpp",
            "hxx",
            "h++",
            "inl",
            "ipp",
            "cu",
            "cuh",
            "ino",
        ),
        package="tree_sitter_cpp",
        query=_QUERY,
        imports=c.imports,
        keywords=_KEYWORDS,
    ),
)
