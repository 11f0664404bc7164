"""Changesets in the database."""
