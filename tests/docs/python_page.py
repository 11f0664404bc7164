"""`python -m tests.docs.python_page`: writes docs/reference/python-api.md, from signatures and docstrings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import cleveragents
from cleveragents.api import client

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python-api.md"
_LONGEST_SIGNATURE = 100

_HEAD = """\
# Python API

[Use CleverAgents from Python](../how-to/embed.md) has examples that run.
This page is made by `python -m tests.docs.python_page`, from the signatures and docstrings.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join(_lines()).rstrip("\n") + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield "## Connect\n"
    for function in (cleveragents.connect, cleveragents.connect_async):
        yield from _described(function.__name__, function)
    yield "## Requests\n"
    for kind in (cleveragents.PlanRequest, cleveragents.Limits):
        yield from _fields(kind)
    views: dict[str, type] = {}
    for name, member in vars(client.Client).items():
        if isinstance(member, property):
            group = _group(member)
            yield f"## client.{name}\n"
            yield f"{_text(inspect.getdoc(group))}\n"
            for method, function in vars(group).items():
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield from _described(method, function)
                    views |= _views(_returned(function))
    yield "## Views\n"
    yield "Views are frozen: a view never changes, whatever becomes of what it shows.\n"
    for _, view in sorted(views.items()):
        yield from _fields(view)
    yield "## Building blocks\n"
    for name in sorted(cleveragents.__all__, key=str.lower):
        exported = getattr(cleveragents, name)
        if not name.startswith("_") and name not in ("connect", "connect_async", "PlanRequest", "Limits"):
            yield f"- `{name}`: {_text(inspect.getdoc(exported)).splitlines()[0]}"


def _described(name: str, function: typing.Any) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"```text\n{_signature(name, function)}\n```\n"
    yield f"{_text(inspect.getdoc(function))}\n"


def _signature(name: str, function: typing.Any) -> str:
    signature = inspect.signature(function)
    given = [one for one in signature.parameters.values() if one.name != "self"]
    said = str(signature.replace(parameters=given)).replace("'", "")
    if len(name + said) <= _LONGEST_SIGNATURE:
        return name + said
    inner, _, returns = said[1:].rpartition(") -> ")
    pieces = re.split(r", (?=[\w*]+(?::|$|,| =))", inner)
    return f"{name}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f") -> {returns}"


def _fields(kind: type) -> Iterator[str]:
    yield f"### {kind.__name__}\n"
    yield f"{_text(inspect.getdoc(kind))}\n"
    yield "| field | type | |"
    yield "|---|---|---|"
    for field in dataclasses.fields(kind):
        said = str(field.type).replace("|", "\\|")
        yield f"| `{field.name}` | `{said}` | {field.metadata.get('description', '')} |"
    yield ""


def _group(member: property) -> typing.Any:
    """Return the protocol of a group, which may be imported for type checkers only."""
    from tools.async_stub import module_of

    name = member.fget.__annotations__["return"]
    return getattr(import_module(module_of(name)), name)


def _returned(function: typing.Any) -> object:
    """Return the type of what a method returns."""
    known = {**_checked_names(function.__module__), **function.__globals__}
    return eval(function.__annotations__["return"], known)


@cache
def _checked_names(module: str) -> dict[str, object]:
    """Return what a module imports, including its imports for type checkers only."""
    source = Path(str(import_module(module).__file__)).read_text("utf-8")
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: getattr(import_module(str(node.module)), alias.name)
        for node in imports
        for alias in node.names
        if str(node.module).startswith("cleveragents")
    }


def _views(returned: object) -> dict[str, type]:
    """Return the views in what a method returns, and those inside them."""
    found: dict[str, type] = {}
    for kind in (returned, *typing.get_args(returned)):
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__name__ != "Page":
            found[kind.__name__] = kind
            for hint in typing.get_type_hints(kind).values():
                found |= _views(hint)
        elif kind is not returned:
            found |= _views(kind)
    return found


def _text(docstring: str | None) -> str:
    return (docstring or "").replace("\n    ", "\n")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
