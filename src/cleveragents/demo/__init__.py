"""`agents demo`: six goals in parallel, with real workers and a sample repository."""
