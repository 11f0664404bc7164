"""`agents ask` and `agents session`: conversations about a repository."""
