"""Corrections: supersede a decision, revert the work that followed, and plan again."""
