"""Actions: read from YAML, stored in the database, or found in repositories."""
