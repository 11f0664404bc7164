"""MCP: servers that offer tools, started when they are needed and ended with the plan that needed them."""
