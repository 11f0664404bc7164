"""Commands for definitions, servers, users and upkeep."""
