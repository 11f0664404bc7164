"""The built-in tools, one per file. Each module offers its tool, named like the module, as `TOOL`."""
