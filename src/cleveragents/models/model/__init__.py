"""Conversations and budgets: data and rules, no I/O."""
