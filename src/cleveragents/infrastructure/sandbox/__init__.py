"""Sandboxes: one strategy per file, the sandbox that both make, and the registry of all of them."""
