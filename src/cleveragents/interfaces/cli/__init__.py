"""The `agents` command; one file per command group."""
