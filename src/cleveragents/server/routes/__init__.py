"""Routes of the API: each module has a `router`, or a `root` for what is not below /api."""
