"""Users, members and projects in the database."""
