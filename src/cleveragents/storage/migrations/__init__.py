"""The Alembic environment: `schema.ensure_schema` runs it over its connection."""
