"""What people wrote down for agents: instructions and skills, the user's and the repository's."""
