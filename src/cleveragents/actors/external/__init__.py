"""External agents: run as commands, or over the Agent Client Protocol."""
