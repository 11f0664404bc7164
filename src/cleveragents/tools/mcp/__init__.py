"""MCP: servers that offer tools, started on demand and ended with their plan."""
