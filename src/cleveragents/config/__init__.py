"""Settings, YAML files, entry points and logging.

Each value records its origin, and an error lists all mistakes of all files.
"""
