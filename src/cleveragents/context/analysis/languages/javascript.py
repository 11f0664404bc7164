"""JavaScript, and the parts that TypeScript shares with it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cleveragents.context.analysis.language import Language
from cleveragents.context.model.code import Import

__all__ = ["KEYWORDS", "LANGUAGES", "QUERY", "imports"]

QUERY = """
(function_declaration name: (_) @name body: (_) @body) @definition.function
(generator_function_declaration name: (_) @name body: (_) @body) @definition.function
(class_declaration name: (_) @name body: (_) @body) @definition.class
(method_definition name: (_) @name body: (_) @body) @definition.function
(variable_declarator name: (identifier) @name value: (class body: (_) @body)) @definition.class
(variable_declarator name: (identifier) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.function
(assignment_expression left: (member_expression property: (property_identifier) @name)
  right: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.function
(pair key: (property_identifier) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.function
(program (lexical_declaration (variable_declarator name: (identifier) @name) @definition.variable))
(program (variable_declaration (variable_declarator name: (identifier) @name) @definition.variable))
(program (export_statement
  declaration: (lexical_declaration (variable_declarator name: (identifier) @name) @definition.variable)))
(comment) @comment
(decorator) @lead
(string_fragment) @string
(import_statement) @import
(export_statement source: (_)) @import
(call_expression function: [(identifier) (import)] @name
  arguments: (arguments . (string) .) (#any-of? @name "require" "import")) @import
"""

_KEYWORD_LIST = (
    "async await break case catch class const continue debugger default delete do else export extends"
    " finally for from function get if import in instanceof let new null of return set static super"
    " switch this throw true false try typeof undefined var void while with yield"
)
KEYWORDS = frozenset(_KEYWORD_LIST.split())

_FIELDS = """
(field_definition property: (_) @name
  value: [(arrow_function body: (_) @body) (function_expression body: (_) @body)]) @definition.function
(class_body (field_definition property: (_) @name) @definition.variable)
(jsx_text) @string
"""

_MODULE = re.compile(r"""["'`]([^"'`\n]+)["'`]\s*\)?[^"'`]*$""")
_DEFAULT = re.compile(r"import\s+(?:type\s+)?([\w$]+)\s*(?:,|from\b)")
_NAMESPACE = re.compile(r"\*\s*as\s+([\w$]+)")
_NAMED = re.compile(r"\{([^{}]*)\}")
_ALL = re.compile(r"export\s*\*\s*from")
_NOISE = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def imports(statement: str) -> Iterable[Import]:
    """Parse the module of a statement or call, and the names imported from it."""
    words = _NOISE.sub(" ", statement) if statement.startswith(("import", "export")) else statement
    module = _MODULE.search(words)
    if module is None:
        return
    head = words[: module.start()]
    names = [("default", name) for name in _DEFAULT.findall(head)]
    names += [("*", name) for name in _NAMESPACE.findall(head)]
    if _ALL.match(head):
        names.append(("*", "*"))
    for listed in _NAMED.findall(head):
        for taken in listed.split(","):
            parts = [part for part in taken.split() if part not in ("as", "type")]
            if parts:
                names.append((parts[0], parts[-1]))
    yield Import(module[1], tuple(names))


LANGUAGES = (
    Language(
        name="javascript",
        extensions=("js", "jsx", "mjs", "cjs"),
        package="tree_sitter_javascript",
        query=QUERY + _FIELDS,
        imports=imports,
        keywords=KEYWORDS,
        interpreters=("node",),
    ),
)
