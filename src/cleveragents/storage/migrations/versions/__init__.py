"""One file per revision, numbered; a released revision never changes."""
