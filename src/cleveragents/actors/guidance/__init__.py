"""Guidance for agents: instructions and skills of the user and of the repository."""
