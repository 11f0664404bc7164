"""Providers of models, one module each; it has its name, and a `PROVIDER` for the catalogue."""
