"""Files in which people write down goals that belong together."""
