"""Actors: YAML compiled to LangGraph graphs, and run.

An actor's file is validated whole, every mistake with its line; a run repeats no finished tool call after a
crash.
"""
