"""Runs the conformance suites of MCP, A2A and ACP against the program. `nox -s conformance` runs them."""
