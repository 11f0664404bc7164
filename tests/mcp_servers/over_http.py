"""A server behind a URL on the loopback interface, made with the official package. Run as a program.

Says its port on stdout. Answers only who brings the header `Authorization: Bearer` and the token it is given.
"""

from __future__ import annotations

import gzip
import os
import socket
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("over-http")


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool(structured_output=False)
def flood(size: int) -> str:
    """Answers with so many characters."""
    return "x" * size


def guarded(app: Any, token: str) -> Any:
    async def check(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers", [])).get(b"authorization")
        if scope["type"] == "http" and given != f"Bearer {token}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"who are you?"})
            return
        if scope.get("path") == "/compressed":
            encoded = [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
            await send({"type": "http.response.start", "status": 200, "headers": encoded})
            await send({"type": "http.response.body", "body": gzip.compress(b"{}")})
            return
        await app(scope, receive, send)

    return check


if __name__ == "__main__":
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # before it says where: whoever comes then may wait, but is not refused
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    app = guarded(server.streamable_http_app(), os.environ["HTTP_TOKEN"])
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
