"""Published import paths; the code is elsewhere."""
