"""Protocols for other agents and for editors: an MCP server, an A2A server and an ACP agent.

All use only the `Client` API, which checks the rights of the acting user.
"""
