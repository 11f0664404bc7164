"""Traces of what plans do, for whoever runs a collector of them."""
