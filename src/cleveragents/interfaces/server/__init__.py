"""The HTTP API and the page, served by one process."""
