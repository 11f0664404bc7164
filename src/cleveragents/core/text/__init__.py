"""Text that people and programs read: redaction, control characters, templates."""
