"""Anchors of the audit log outside the machine: signed statements in a file, at a URL or on a git branch."""

__all__: list[str] = []
