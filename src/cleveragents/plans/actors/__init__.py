"""The actors of a plan: their tools, their context and their answers."""
