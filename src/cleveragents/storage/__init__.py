"""The database: SQLite by default, PostgreSQL by URL; migrations, outbox and backup.

Acknowledged writes are durable, and lock conflicts are retried instead of reported.
"""
