"""Plans: strategize, execute in a sandbox, check, review, apply."""
