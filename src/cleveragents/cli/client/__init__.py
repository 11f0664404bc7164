"""The command line as a client: the same commands, carried out by a server."""
