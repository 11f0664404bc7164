"""Built-in model providers. Each module is named after its provider and defines `PROVIDER`."""
