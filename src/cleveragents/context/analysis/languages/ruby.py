"""Ruby."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cleveragents.context.analysis.language import Language
from cleveragents.context.model.code import Import

__all__ = ["LANGUAGES"]

_QUERY = """
(method name: (_) @name) @definition.method
(method name: (_) @name body: (_) @body) @definition.method
(singleton_method name: (_) @name) @definition.method
(singleton_method name: (_) @name body: (_) @body) @definition.method
(class name: (_) @name) @definition.class
(class name: (_) @name body: (_) @body) @definition.class
(module name: (_) @name) @definition.module
(module name: (_) @name body: (_) @body) @definition.module
(assignment left: (constant) @name) @definition.variable
(comment) @comment
(string_content) @string
(heredoc_content) @string
(call method: (identifier) @name arguments: (argument_list (string))
  (#any-of? @name "require" "require_relative" "load" "autoload")) @import
"""

_KEYWORDS = (
    "alias and begin break case class def defined do else elsif end ensure false for if in module next"
    " nil not or redo rescue retry return self super then true undef unless until when while yield"
)
_QUOTED = re.compile(r"""["']([^"'\n]+)["']""")


def _imports(call: str) -> Iterable[Import]:
    path = _QUOTED.search(call)
    if path is not None:
        yield Import(f"./{path[1]}" if call.startswith("require_relative") else path[1])


LANGUAGES = (
    Language(
        name="ruby",
        extensions=("rb", "rake", "gemspec", "ru"),
        package="tree_sitter_ruby",
        query=_QUERY,
        imports=_imports,
        keywords=frozenset(_KEYWORDS.split()),
        interpreters=("ruby",),
    ),
)
