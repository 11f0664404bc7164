"""Adapters: the outside things that the application's ports stand for."""
