"""Text for people and programs: redaction, control characters, templates."""
