"""Conflicts between a plan and its sub-plans: shown, and resolved by an actor or a person."""
