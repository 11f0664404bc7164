"""Sessions with external agents, whose requests become recorded tool calls of a plan."""
