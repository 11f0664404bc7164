"""Plans and their records in the database; every move is one transaction with its event."""
