"""One file per revision, numbered; a released one never changes."""
