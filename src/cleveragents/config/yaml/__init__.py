"""YAML that people write and repositories bring along: read within bounds, and judged line by line."""
