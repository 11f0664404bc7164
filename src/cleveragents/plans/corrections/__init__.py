"""Corrections: supersede a decision, take back the work that followed, and go on."""
