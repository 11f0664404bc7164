"""Routes of the API. Each module has a `router` below /api, a `root` outside of it, or both."""
