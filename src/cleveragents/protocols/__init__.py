"""Protocols for other agents: an MCP server and an A2A server."""
