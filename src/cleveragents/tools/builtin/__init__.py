"""The built-in tools, one per file. A module here is a tool of that name, and offers it as `TOOL`."""
