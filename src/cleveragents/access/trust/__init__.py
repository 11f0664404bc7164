"""What a repository brings along counts only once the user said so."""
