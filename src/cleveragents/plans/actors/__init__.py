"""The actors of a plan: what each run may use, what it is shown, and how it answers."""
