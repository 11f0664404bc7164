"""The JSON Schema of actor files, for editors: generated from the models and shipped as a file."""

from __future__ import annotations

import json
from importlib.resources import files

__all__ = ["SCHEMA_FILE", "schema_text", "shipped_schema"]

SCHEMA_FILE = "actor.schema.json"


def schema_text() -> str:
    """Return the schema of the current models."""
    from cleveragents.actors.models import actor_file

    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "CleverAgents actor",
        **actor_file().json_schema(),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def shipped_schema() -> str:
    """Return the shipped schema. A test compares it with the models."""
    return (files("cleveragents.actors") / SCHEMA_FILE).read_text(encoding="utf-8")
