"""Actors: YAML files compiled to LangGraph graphs, and their runs.

Validation reports every mistake of a file with its line. After a crash, a run does not repeat finished tool
calls.
"""
