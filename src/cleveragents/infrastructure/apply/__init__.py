"""Bringing a plan's result into the user's files: merge, journal, move, commit, recover."""
