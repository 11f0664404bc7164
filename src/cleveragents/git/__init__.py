"""The git command and git's files, used so that nothing in a repository can run code."""
