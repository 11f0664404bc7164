"""Alembic's environment: run by `schema.ensure_schema` over the connection it is given."""
