"""Jobs and workers in the database; every move is one transaction with its event."""
