"""`agents run`: create plans and run them, in the foreground or in the background."""
