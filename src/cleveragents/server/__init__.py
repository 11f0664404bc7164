"""The HTTP API and the web page, served by one process."""
