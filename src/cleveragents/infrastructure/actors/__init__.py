"""Actors: read from YAML, brought along by packages, users and repositories, and drawn."""
