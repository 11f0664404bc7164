"""The database: SQLite by default, PostgreSQL by URL."""
