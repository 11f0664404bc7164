"""Actors and the rules that make one valid: data and rules, no I/O."""
