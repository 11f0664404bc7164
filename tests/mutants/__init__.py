"""Deletes each guard of the concurrent code in turn, and shows that the tests notice."""
