"""The page: static files that the server hands out, and nothing else."""
