"""`agents demo`: six goals at once, on real workers and a sample repository."""
