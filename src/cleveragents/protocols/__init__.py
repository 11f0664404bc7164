"""Protocols for other agents: an MCP server and an A2A server.

Both use only the `Client` API, which checks the rights of the acting user.
"""
