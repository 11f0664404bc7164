"""The database: SQLite by default, PostgreSQL by URL; migrations, outbox and backup.

What was acknowledged is kept, and no writer is shown a lock.
"""
