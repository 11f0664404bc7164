"""Changesets: every change of a plan, recorded once, in the changeset it was made in."""
