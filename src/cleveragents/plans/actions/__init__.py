"""Actions: read from YAML, kept in the database, brought along by repositories."""
