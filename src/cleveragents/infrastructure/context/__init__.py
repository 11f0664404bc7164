"""The code index, what it holds of each language, and the strategies that find context with it."""
