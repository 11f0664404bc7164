"""The code index: one SQLite file per repository, filled once per content and shared by all processes."""
