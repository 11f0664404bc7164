"""Writes the signatures of `AsyncClient` from the protocols of `Client`.

python -m tools.async_stub
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

__all__ = ["STUB", "module_of", "stub"]

_ROOT = Path(__file__).parents[1] / "src"
_CLIENT = "cleveragents.api.client"
STUB = _ROOT / "cleveragents" / "api" / "async_client.pyi"

_HEAD = '''"""Made by `python -m tools.async_stub`: change the protocols of `Client` instead."""

from collections.abc import AsyncIterator, Sequence
from typing import Self
'''
_TAIL = """
def connect_async(
    server: str | None = None, *, token: str | None = None, settings: Sequence[str] = ...
) -> AsyncClient: ...

class AsyncClient:
    def __init__(self, client: Client, *, threads: int = ...) -> None: ...
{properties}
    async def close(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *_: object) -> None: ...
"""


def stub() -> str:
    """Return the text of the stub, formatted."""
    client = _parsed(_CLIENT)
    protocol = _class(client, "Client")
    imports, classes, properties = {f"from {_CLIENT} import Client"}, [], []
    for node in protocol.body:
        if isinstance(node, ast.FunctionDef) and isinstance(node.returns, ast.Name) and node.decorator_list:
            name = node.returns.id
            module = module_of(name)
            tree = _parsed(module)
            classes.append(_group(_class(tree, name)))
            imports |= _imports(tree, _class(tree, name), module)
            properties.append(f"    @property\n    def {node.name}(self) -> _Async{name}: ...")
    text = "\n".join([_HEAD, *sorted(imports), *classes, _TAIL.format(properties="\n".join(properties))])
    for arguments in (["check", "--fix", "-q", "--select", "I,F401"], ["format", "-q"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


def module_of(name: str) -> str:
    """Return the module of a protocol of the client, even if it is imported only for type checkers."""
    found = [
        node
        for node in ast.walk(_parsed(_CLIENT))
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names)
    ]
    return str(found[0].module)


def _group(protocol: ast.ClassDef) -> str:
    lines = [f"class _Async{protocol.name}:"]
    for node in protocol.body:
        if isinstance(node, ast.FunctionDef):
            node.args.defaults = [ast.Constant(...) for _ in node.args.defaults]
            node.args.kw_defaults = [one and ast.Constant(...) for one in node.args.kw_defaults]
            returns = "" if node.returns is None else ast.unparse(node.returns)
            is_iterator = returns.startswith("Iterator")
            said = f"Async{returns}" if is_iterator else returns
            start = "def" if is_iterator else "async def"
            lines.append(f"    {start} {node.name}({ast.unparse(node.args)}) -> {said}: ...")
    return "\n".join(lines)


def _imports(tree: ast.Module, protocol: ast.ClassDef, module: str) -> set[str]:
    """Return the imports that the signatures need."""
    used = {node.id for node in ast.walk(protocol) if isinstance(node, ast.Name)}
    found = {
        f"from {node.module} import {alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in used
    }
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef) if node is not protocol]
    assigned = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    local = {name for name in (*defined, *assigned) if name in used}
    return found | {f"from {module} import {name}" for name in local}


def _parsed(module: str) -> ast.Module:
    return ast.parse((_ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))


def _class(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
