"""Run git and read its files in such a way that nothing in a repository can run code."""
