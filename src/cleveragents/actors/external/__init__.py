"""Agents by other makers: run as commands, or spoken to over the Agent Client Protocol."""
