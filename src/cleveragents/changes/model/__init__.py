"""Conflicts and reviews: data and rules, no I/O."""
