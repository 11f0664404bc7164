"""Tools that only a plan's actors have: decisions, conflicts, context and the MCP gate."""
