"""`agents plan` through a server."""
