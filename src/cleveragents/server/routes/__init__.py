"""Routes of the API, one module a resource, each with a `router`."""
