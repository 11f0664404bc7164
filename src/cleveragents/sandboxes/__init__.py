"""Sandboxes: private copies of a repository or directory, with one writer at a time.

The host follows no link and runs no git on files that a sandboxed process can change.
"""
