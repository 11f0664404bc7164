"""YAML files from users and repositories: bounded reads and problems with line numbers."""
