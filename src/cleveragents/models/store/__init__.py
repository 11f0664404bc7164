"""Budgets and model calls in the database."""
