"""Protocols for other agents: an MCP server and an A2A server.

Both are surfaces of the `Client` API and use nothing deeper: the client checks the rights of the acting user.
"""
