"""Tools: built in, from packages, or from MCP servers, confined to the files of a sandbox."""
