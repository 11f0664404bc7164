"""Files with goals that belong together."""
