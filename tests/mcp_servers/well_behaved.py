"""A server that keeps to the protocol, made with the official package. Run as a program."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("well-behaved")


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def look(path: str) -> str:
    """Reads a file."""
    return Path(path).read_text()


@server.tool(structured_output=False)
def scribble(path: str, text: str) -> str:
    """Writes a file."""
    Path(path).write_text(text)
    return f"wrote {path}"


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def pair() -> dict[str, Any]:
    """Gives two things."""
    return {"a": 1, "b": "two"}


@server.tool(structured_output=False)
def picture() -> Image:
    """Shows a picture."""
    return Image(data=b"0123456789", format="png")


@server.tool(structured_output=False)
def refuse() -> str:
    """Fails."""
    raise ValueError("no, I will not")


@server.tool(structured_output=False)
def variable(which: str) -> str:
    """Tells a variable of its environment."""
    return os.environ.get(which, "(not set)")


@server.tool(structured_output=False)
def long() -> str:
    """Says a lot."""
    return "x" * 1_000_000


@server.tool(structured_output=False, name="odd/name.of a tool")
def odd() -> str:
    """Has a name that models do not take."""
    return "odd"


if __name__ == "__main__":
    sys.stdout.write("greetings on the wrong stream\n")
    sys.stdout.flush()
    sys.stderr.write(f"a complaint that names {os.environ.get('GIVEN_TOKEN')}\n")
    server.run()
