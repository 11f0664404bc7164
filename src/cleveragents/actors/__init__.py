"""Actors: YAML compiled to LangGraph graphs, and run.

Validation reports every mistake of a file with its line. After a crash, a run does not repeat finished tool
calls.
"""
