"""Rust."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cleveragents.context.analysis.language import Language
from cleveragents.context.model.code import Import

__all__ = ["LANGUAGES"]

_QUERY = """
(function_item name: (_) @name body: (_) @body) @definition.function
(function_signature_item name: (_) @name) @definition.declaration
(struct_item name: (_) @name) @definition.struct
(struct_item name: (_) @name body: (_) @body) @definition.struct
(enum_item name: (_) @name body: (_) @body) @definition.enum
(union_item name: (_) @name body: (_) @body) @definition.union
(trait_item name: (_) @name body: (_) @body) @definition.trait
(impl_item type: (type_identifier) @name body: (_) @body) @definition.impl
(impl_item type: (generic_type type: (_) @name) body: (_) @body) @definition.impl
(impl_item type: (scoped_type_identifier name: (_) @name) body: (_) @body) @definition.impl
(mod_item name: (_) @name body: (_) @body) @definition.module
(macro_definition name: (_) @name) @definition.macro
(type_item name: (_) @name) @definition.type
(const_item name: (_) @name) @definition.variable
(static_item name: (_) @name) @definition.variable
(line_comment) @comment
(block_comment) @comment
(attribute_item) @lead
(string_content) @string
(use_declaration) @import
(mod_item !body) @import
"""

_KEYWORDS = (
    "as async await break const continue crate dyn else enum extern false fn for if impl in let loop"
    " match mod move mut pub ref return self Self static struct super trait true type unsafe use where"
    " while str usize bool u8 u16 u32 u64 i8 i16 i32 i64 isize"
)
_DEEPEST = 8
_HEAD = re.compile(r"^\s*(?:pub\s*(?:\([^)]*\))?\s*)?(use|mod)\b")
_NOISE = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


def _imports(statement: str) -> Iterable[Import]:
    words = _NOISE.sub(" ", statement)
    head = _HEAD.match(words)
    if head is None:
        return
    tree = words[head.end() :].strip().rstrip(";").strip()
    if head[1] == "mod":
        yield Import(f"self::{tree}")
    else:
        yield from _taken("", tree, _DEEPEST)


def _taken(prefix: str, tree: str, depth: int) -> Iterable[Import]:
    """Yield the imports of a use tree below the module `prefix`; nested lists are followed `depth` times."""
    path, brace, listed = tree.partition("{")
    module = f"{prefix}{path.strip()}".removesuffix("::")
    if not brace:
        target, _, alias = module.partition(" as ")
        inside, _, name = target.strip().rpartition("::")
        yield Import(inside or name, ((name, alias.strip() or name),) if inside else ())
        return
    branches = _split(listed.rpartition("}")[0])
    plain = [branch for branch in branches if "::" not in branch and "{" not in branch]
    names = [branch.split(" as ") for branch in plain]
    if names:
        yield Import(module, tuple((name[0].strip(), name[-1].strip()) for name in names))
    if depth:
        for branch in branches:
            if branch not in plain:
                yield from _taken(f"{module}::" if module else "", branch, depth - 1)


def _split(listed: str) -> list[str]:
    """Split at the commas outside of braces."""
    branches = [""]
    depth = 0
    for part in re.split(r"([{},])", listed):
        depth += (part == "{") - (part == "}")
        if part == "," and depth == 0:
            branches.append("")
        else:
            branches[-1] += part
    return [branch.strip() for branch in branches if branch.strip()]


LANGUAGES = (
    Language(
        name="rust",
        extensions=("rs",),
        package="tree_sitter_rust",
        query=_QUERY,
        imports=_imports,
        keywords=frozenset(_KEYWORDS.split()),
    ),
)
