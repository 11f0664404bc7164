"""Conditions of routes: a small language over an actor's state, evaluated by simpleeval, never by `eval`.

A condition consists of names of the state, their parts (`review.verdict`, `files[0]`), strings, numbers,
lists, `and`, `or`, `not`, comparisons, `in`, `+`, `-`, and the functions below. Anything else is rejected
when the actor is loaded, not during a run. A part after a dot is looked up like a part in brackets, so
attributes of Python objects are never accessed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

from cleveragents.core.errors import InvalidCondition
from cleveragents.core.json_value import JsonValue

__all__ = ["FUNCTIONS", "Condition"]

_LONGEST = 1000
_MOST_PARTS = 200

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "all": all,
    "any": any,
    "len": len,
    "lower": lambda text: str(text).lower(),
    "max": max,
    "min": min,
}

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.In: lambda part, whole: part in whole,
    ast.NotIn: lambda part, whole: part not in whole,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
}

_SHAPES = (
    *(ast.Expression, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Call, ast.Constant, ast.Name),
    *(ast.Subscript, ast.List, ast.Tuple, ast.Load, ast.And, ast.Or, *_OPERATORS),
)
_CONSTANTS = (str, int, float, bool, type(None))


class Condition:
    """A condition that was checked against the available names. Immutable; any thread may use it."""

    __slots__ = ("_tree", "text")

    def __init__(self, text: str, names: Collection[str]) -> None:
        """Parse and check a condition. Raises `InvalidCondition` with the problem and a remedy."""
        self.text = text
        self._tree = self._parsed()
        self._check(names)

    def holds(self, values: Mapping[str, JsonValue]) -> bool:
        """Evaluate the condition.

        Raises `InvalidCondition` if the evaluation fails, for example because a part is missing or a string
        is compared with a number.
        """
        from simpleeval import EvalWithCompoundTypes, InvalidExpression

        # The evaluator keeps state, so each evaluation needs its own.
        evaluator = EvalWithCompoundTypes(
            operators=dict(_OPERATORS), functions=dict(FUNCTIONS), names=dict(values)
        )
        try:
            return bool(evaluator.eval(self.text, self._tree.body))
        except KeyError as missing:
            raise self._wrong(f"{missing.args[0]!r} is missing") from missing
        except (InvalidExpression, TypeError, ValueError, IndexError, ArithmeticError) as error:
            raise self._wrong(f"cannot evaluate: {error}") from error

    def _parsed(self) -> ast.Expression:
        if len(self.text) > _LONGEST:  # guard: the parser's stack is bounded
            raise self._wrong(f"longer than {_LONGEST} characters")
        try:
            tree = ast.parse(self.text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problem = error.msg if isinstance(error, SyntaxError) else str(error)
            raise self._wrong(
                f"not a valid condition ({problem}); for example: verdict == 'approved'"
            ) from error
        if sum(1 for _ in ast.walk(tree)) > _MOST_PARTS:  # guard: bounds the evaluation
            raise self._wrong(f"more than {_MOST_PARTS} parts")
        _PartsByName().visit(tree)
        return ast.fix_missing_locations(tree)

    def _check(self, names: Collection[str]) -> None:
        called = {id(node.func) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
        for node in ast.walk(self._tree):
            problem = _problem(node, names, is_called=id(node) in called)
            if problem is not None:
                raise self._wrong(problem)

    def _wrong(self, problem: str) -> InvalidCondition:
        return InvalidCondition(self.text, problem)


class _PartsByName(ast.NodeTransformer):
    """Rewrites `a.b` to `a["b"]`."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return ast.Subscript(node.value, ast.Constant(node.attr), ast.Load())


def _problem(node: ast.AST, names: Collection[str], *, is_called: bool) -> str | None:
    if not isinstance(node, _SHAPES):  # guard: only what is known to be harmless
        known = "comparisons, and, or, not, in, +, -, keys of the state, strings, numbers and lists"
        return f"{type(node).__name__} is not allowed in a condition; use {known}"
    if isinstance(node, ast.Constant) and not isinstance(node.value, _CONSTANTS):
        return f"{node.value!r} is not allowed in a condition"
    if isinstance(node, ast.Call):
        return _problem_of_call(node)
    if isinstance(node, ast.Name) and not is_called and node.id not in names:
        near = get_close_matches(node.id, list(names), n=1)
        hint = f"did you mean {near[0]}?" if near else f"available: {', '.join(names) or 'none'}"
        return f"the state has no key {node.id!r}; {hint}"
    return None


def _problem_of_call(node: ast.Call) -> str | None:
    known = ", ".join(FUNCTIONS)
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:  # guard: only these functions
        return f"unknown function; use one of: {known}"
    if node.keywords:
        return f"{node.func.id} takes no named arguments"
    return None
