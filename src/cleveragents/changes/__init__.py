"""Changesets: every change of a plan, recorded once, under the changeset it was made in."""
