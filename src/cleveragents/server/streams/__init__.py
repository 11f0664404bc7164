"""Server-sent events: one hub follows the log, and every client has a cursor."""
