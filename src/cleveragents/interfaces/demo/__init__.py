"""What `agents demo` plays: six goals at once, on real workers and a sample repository."""
