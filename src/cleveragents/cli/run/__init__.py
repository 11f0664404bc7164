"""`agents run`: create plans and follow them, in front or in the background."""
