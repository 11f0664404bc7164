"""The static files of the page."""
