"""The names that a module binds at its top level, uses from there, and needs at import time."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Needs", "Use", "bound_at_top", "global_uses", "is_type_checking", "local_names", "needs"]

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Use:
    """The use of a top-level name at a node, with the locals of the functions around it."""

    node: ast.Name
    around: frozenset[str]
    parent: ast.AST


@dataclass(frozen=True)
class Needs:
    """Names that a statement reads: immediately, through immediate calls, in annotations, or at all."""

    at_once: frozenset[str]
    called: frozenset[str]
    annotated: frozenset[str]
    ever: frozenset[str]


def is_type_checking(node: ast.stmt) -> bool:
    """Return whether a statement is `if TYPE_CHECKING:` with only imports."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        and not node.orelse
        and all(isinstance(inner, ast.Import | ast.ImportFrom | ast.Pass) for inner in node.body)
    )


def bound_at_top(node: ast.AST) -> set[str]:
    """Return the names that a statement or module binds in its scope."""
    return set(_bound(node))


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.id
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    if isinstance(node, _COMPREHENSIONS):
        yield from _walrus(node)
        return
    for child in ast.iter_child_nodes(node):
        yield from _bound(child)


def _walrus(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.NamedExpr):
            yield inner.target.id


def _locals(function: _Function) -> frozenset[str]:
    arguments = function.args
    names = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    names |= {one.arg for one in (arguments.vararg, arguments.kwarg) if one is not None}
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    declared: set[str] = set()
    for statement in body:
        names.update(_bound(statement))
        declared.update(
            name for one in ast.walk(statement) if isinstance(one, ast.Global) for name in one.names
        )
    return frozenset(names - declared)


def local_names(tree: ast.AST) -> set[str]:
    """Return the names that are local to a function, comprehension or class of the module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            found |= _locals(node)
        elif isinstance(node, ast.comprehension):
            found |= bound_at_top(node.target)
        elif isinstance(node, ast.ClassDef):
            found.update(name for inner in node.body for name in _bound(inner))
    return found


def global_uses(tree: ast.AST) -> list[Use]:
    """Return every use of a name that is not local to a function, comprehension or class."""
    return list(_uses(tree, frozenset(), frozenset(), tree))


def _uses(node: ast.AST, around: frozenset[str], of_class: frozenset[str], parent: ast.AST) -> Iterator[Use]:
    if isinstance(node, ast.Name):
        if node.id not in around and node.id not in of_class:
            yield Use(node, around, parent)
        return
    if isinstance(node, _FUNCTIONS):
        yield from _uses_of_function(node, around, of_class)
        return
    if isinstance(node, ast.ClassDef):
        own = frozenset(name for inner in node.body for name in _bound(inner))
        for child in (*node.decorator_list, *node.bases, *node.keywords):
            yield from _uses(child, around, of_class, node)
        for child in node.body:
            yield from _uses(child, around, own, node)
        return
    if isinstance(node, _COMPREHENSIONS):
        inside = {name for one in node.generators for name in bound_at_top(one.target)} - set(_walrus(node))
        around = around | inside
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, around, of_class, node)


def _uses_of_function(node: _Function, around: frozenset[str], of_class: frozenset[str]) -> Iterator[Use]:
    outside: list[ast.AST] = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
    inside: list[ast.AST]
    if isinstance(node, ast.Lambda):
        inside = [node.body]
    else:
        outside += node.decorator_list
        outside += _annotations(node)
        inside = list(node.body)
    for child in outside:
        yield from _uses(child, around, of_class, node)
    within = around | _locals(node)
    for child in inside:
        yield from _uses(child, within, frozenset(), node)


def _annotations(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.AST]:
    arguments = node.args
    all_of_them = (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    )
    found: list[ast.AST] = [
        one.annotation for one in all_of_them if one is not None and one.annotation is not None
    ]
    return found + ([node.returns] if node.returns is not None else [])


def needs(statements: Iterable[ast.stmt]) -> Needs:
    """Return the names that the statements read, and when."""
    at_once: set[str] = set()
    called: set[str] = set()
    annotated: set[str] = set()
    ever: set[str] = set()
    for statement in statements:
        ever.update(use.node.id for use in global_uses(statement))
        for node, is_annotation in _evaluated(statement):
            names = {use.node.id for use in global_uses(node)}
            (annotated if is_annotation else at_once).update(names)
            if not is_annotation:
                called.update(_called(node))
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            called.update(name for one in statement.decorator_list for name in _names(one))
    return Needs(frozenset(at_once), frozenset(called), frozenset(annotated), frozenset(ever))


def _names(node: ast.AST) -> set[str]:
    return {use.node.id for use in global_uses(node)}


def _called(node: ast.AST) -> set[str]:
    calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return {name for call in calls for name in _names(call.func)}


def _evaluated(node: ast.stmt) -> Iterator[tuple[ast.AST, bool]]:
    """Yield expressions that run with the statement, and whether each is an annotation."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from ((one, False) for one in node.decorator_list)
        yield from ((one, False) for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None)
        yield from ((one, True) for one in _annotations(node) if node.decorator_list)
    elif isinstance(node, ast.ClassDef):
        yield from ((one, False) for one in (*node.decorator_list, *node.bases, *node.keywords))
        for inner in node.body:
            yield from _evaluated(inner)
    elif isinstance(node, ast.AnnAssign):
        yield node.annotation, True
        if node.value is not None:
            yield node.value, False
    elif isinstance(node, ast.If | ast.With | ast.Try | ast.For | ast.While):
        for child in ast.iter_child_nodes(node):
            yield from _evaluated(child) if isinstance(child, ast.stmt) else [(child, False)]
    else:
        yield node, False
