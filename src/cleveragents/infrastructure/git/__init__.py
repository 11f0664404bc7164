"""The git command, run so that nothing a repository brings along can run with it."""
