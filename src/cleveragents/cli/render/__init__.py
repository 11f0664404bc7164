"""Output for people: live views, boards and tables."""
