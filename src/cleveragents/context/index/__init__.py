"""The code index: one SQLite file per repository, filled once per content, shared by all who look at it."""
