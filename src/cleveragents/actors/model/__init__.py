"""Actors and their validation rules: data and rules, no I/O."""
