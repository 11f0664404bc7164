"""`agents`, whose server also has the reference server of MCP's SDK."""

from __future__ import annotations

from cleveragents.cli import main
from cleveragents.server import app

__all__: list[str] = []

if __name__ == "__main__":
    app.PROTOCOLS = (*app.PROTOCOLS, "tests.conformance.everything_routes")
    main.run()
