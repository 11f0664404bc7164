"""Actions: templates of plans, their arguments, checks and invariants."""
